import { dynamicOnly, maxDepth, packageRooms, rooms } from "./scripts/layers.js";

/** The rule for files of `room` that lie `depth` folders below `src/`; `also` are rooms one file may reach beyond its room's. */
function layering(room, depth, also = []) {
  const allowed = [...rooms[room], ...also];
  const forbidden = Object.keys(rooms).filter((other) => other !== room && !allowed.includes(other));
  const leave = depth === 0 ? "\\./" : `(\\.\\./){${depth}}`;
  const patterns = [
    {
      regex: `^${leave}(${forbidden.join("|")})(/|\\.ts$)`,
      message: `\`${room}\` may import only: ${allowed.join(", ") || "nothing"} (scripts/layers.js).`,
    },
    { regex: "^whetstone($|/)", message: "Inside src, import relatively: a package that imports itself by name can load twice." },
  ];
  for (const [name, owners] of Object.entries(packageRooms)) {
    if (owners.includes(room)) continue;
    patterns.push({ regex: `^${name}($|/)`, message: `\`${name}\` belongs to: ${owners.join(", ")} (scripts/layers.js).` });
  }
  return { "no-restricted-imports": ["error", { patterns }] };
}

const layers = [
  ...Object.keys(rooms).flatMap((room) => [
    { files: [`src/${room}.ts`], rules: layering(room, 0) },
    ...Array.from({ length: maxDepth }, (_, index) => ({
      files: [`src/${room}/${"*/".repeat(index)}*.ts`],
      rules: layering(room, index + 1),
    })),
  ]),
  ...Object.entries(dynamicOnly).map(([file, also]) => {
    const [, room, ...rest] = file.split("/");
    return { files: [file], rules: layering(room, rest.length, also) };
  }),
];

export default {
  plugins: ["typescript", "unicorn", "oxc", "import", "jsdoc"],
  options: { typeAware: true, denyWarnings: true, reportUnusedDisableDirectives: "error" },
  categories: { correctness: "error" },
  ignorePatterns: ["dist", "docs/reference/api", "models", "coverage", "runs"],
  rules: {
    eqeqeq: "error",
    "max-lines": ["error", { max: 600 }],
    "no-restricted-globals": [
      "error",
      { name: "fetch", message: "Use undici: its pool, timeouts and errors are chosen in src/client/transport." },
    ],
    "prefer-const": "error",
    "import/no-cycle": "error",
    "jsdoc/check-tag-names": ["error", { definedTags: ["source"] }],
    "typescript/consistent-type-imports": "error",
    "typescript/no-explicit-any": "error",
    "typescript/no-floating-promises": "error",
    "typescript/no-misused-promises": "error",
    "typescript/no-misused-spread": ["error", { allow: ["string"] }],
    "typescript/switch-exhaustiveness-check": ["error", { considerDefaultExhaustiveForUnions: true }],
    // Correctness rules that are wrong here: `unknown` goes into messages, arrays are allocated by length, a copy is iterated while its
    // source changes, and the type of a generator says what it yields.
    "jsdoc/require-yields": "off",
    "typescript/no-base-to-string": "off",
    "unicorn/no-new-array": "off",
    "unicorn/no-useless-spread": "off",
  },
  overrides: [
    ...layers,
    {
      files: ["recipes/**", "examples/**"],
      // The one builds what the package ships, from its insides; the other is the door through which recipes get their draws.
      excludeFiles: ["recipes/base-model/**", "recipes/shared/draws.ts"],
      rules: {
        "no-restricted-imports": [
          "error",
          { patterns: [{ group: ["**/src/**"], message: "Import `whetstone` by name, as a reader of the recipe would." }] },
        ],
      },
    },
    {
      files: ["test/**"],
      plugins: ["vitest"],
      rules: {
        // Tests feed malformed values on purpose and talk to servers the way foreign clients do.
        "no-restricted-globals": "off",
        "typescript/no-explicit-any": "off",
        "typescript/unbound-method": "off",
        "vitest/no-focused-tests": "error",
        "vitest/no-disabled-tests": "error",
        // Misread `test.prop`, tables of cases and `expect(value, label)`.
        "vitest/expect-expect": "off",
        "vitest/no-conditional-expect": "off",
        "vitest/no-standalone-expect": "off",
        "vitest/require-mock-type-parameters": "off",
        "vitest/require-to-throw-message": "off",
        "vitest/valid-expect": ["error", { maxArgs: 2 }],
      },
    },
  ],
};

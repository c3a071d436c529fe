import { dynamicOnly, layers, maxDepth, modules, ownFiles, packageModules, roomOf } from "./scripts/layers.js";

/** Pattern that rejects imports of `names` in the folder that lies `depth` levels above the importing file. */
function reject(names, depth, message) {
  const up = depth === 0 ? "\\./" : `(\\.\\./){${depth}}`;
  return { regex: `^${up}(${names.join("|")})(/|\\.tsx?$)`, message };
}

/** Patterns for a file in folder `folders` of `src` (its path split at the slashes), if the folder or a parent of it has layers. */
function layerPatterns(folders) {
  return folders.flatMap((layer, index) => {
    const parent = folders.slice(0, index).join("/");
    const allowed = layers[parent]?.[layer];
    if (allowed === undefined) return [];
    const depth = folders.length - index;
    const forbidden = Object.keys(layers[parent]).filter((other) => other !== layer && !allowed.includes(other));
    const message = `\`${parent}/${layer}\` may import only: ${allowed.join(", ") || "nothing"} (scripts/layers.js).`;
    const patterns = forbidden.length === 0 ? [] : [reject(forbidden, depth, message)];
    if (ownFiles[parent] !== undefined) return patterns;
    const top = {
      regex: `^(\\.\\./){${depth}}[^./]+\\.tsx?$`,
      message: `Files of \`${parent}\` are above \`${layer}\` (scripts/layers.js).`,
    };
    return [...patterns, top];
  });
}

/** Import rule for the files of folder `folders` of `src`; `also` are rooms that a single file may import beyond the room's own. */
function layering(folders, room, also = []) {
  const allowed = [...modules[room], ...also];
  const forbidden = Object.keys(modules).filter((other) => other !== room && !allowed.includes(other));
  const message = `\`${room}\` may import only: ${allowed.join(", ") || "nothing"} (scripts/layers.js).`;
  const wing = `${folders[0]}/`;
  const neighbours = forbidden.filter((other) => other.startsWith(wing)).map((other) => other.slice(wing.length));
  const patterns = [
    reject(forbidden, folders.length, message),
    ...(neighbours.length === 0 ? [] : [reject(neighbours, folders.length - 1, message)]),
    { regex: "^whetstone($|/)", message: "Inside src, import relatively: a package that imports itself by name can load twice." },
    ...layerPatterns(folders),
  ];
  const path = folders.join("/");
  if (ownFiles[path] === "bottom") {
    patterns.push({
      regex: `^\\./(${Object.keys(layers[path]).join("|")})/`,
      message: `Files of \`${path}\` are below its folders (scripts/layers.js).`,
    });
  }
  for (const [name, owners] of Object.entries(packageModules)) {
    if (owners.includes(room)) continue;
    patterns.push({ regex: `^${name}($|/)`, message: `\`${name}\` belongs to: ${owners.join(", ")} (scripts/layers.js).` });
  }
  return { "no-restricted-imports": ["error", { patterns }] };
}

/** Overrides for the files of folder `folders` and of the folders below it. */
function overridesBelow(folders, room) {
  return Array.from({ length: maxDepth - folders.length + 1 }, (_, index) => ({
    files: [`src/${folders.join("/")}/${"*/".repeat(index)}*.{ts,tsx}`],
    rules: layering([...folders, ...Array.from({ length: index }, () => "*")], room),
  }));
}

// The last override that matches a file replaces the rule, so each covers all patterns of its files.
const layerings = [
  ...Object.keys(modules).flatMap((room) => {
    const folders = room.split("/");
    return [{ files: [`src/${room}.ts`], rules: layering(folders.slice(0, -1), room) }, ...overridesBelow(folders, room)];
  }),
  ...Object.entries(layers).flatMap(([parent, children]) => {
    const folders = parent.split("/");
    const room = roomOf(parent);
    return [
      { files: [`src/${parent}/*.ts`], rules: layering(folders, room) },
      ...Object.keys(children).flatMap((child) => overridesBelow([...folders, child], room)),
    ];
  }),
  ...Object.entries(dynamicOnly).map(([file, also]) => {
    const path = file.slice("src/".length);
    return { files: [file], rules: layering(path.split("/").slice(0, -1), roomOf(path), also) };
  }),
];

export default {
  plugins: ["typescript", "unicorn", "oxc", "import", "jsdoc"],
  options: { typeAware: true, denyWarnings: true, reportUnusedDisableDirectives: "error" },
  categories: { correctness: "error" },
  ignorePatterns: ["dist", "site", "models", "coverage", "runs"],
  rules: {
    eqeqeq: "error",
    "max-lines": ["error", { max: 600 }],
    "no-restricted-globals": [
      "error",
      { name: "fetch", message: "Use undici: its pool, timeouts and errors are chosen in src/library/client/transport." },
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
    { files: ["src/**"], rules: { "max-lines": ["error", { max: 350 }] } },
    // Scripts for browsers.
    { files: ["src/lab/page/**"], rules: { "no-restricted-globals": "off" } },
    // `test` of node:test returns a promise that the runner awaits.
    { files: ["template/**"], rules: { "typescript/no-floating-promises": "off" } },
    ...layerings,
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

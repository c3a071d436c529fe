import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, test } from "vitest";
import { dynamicOnly, layers, maxDepth, modules, nativePackages, ownFiles, packageModules } from "../../scripts/layers.js";
import { entries, projectFiles, ROOT } from "./files.ts";
import { importsOf, loadedBy, roomOfFile, type Import } from "./imports.ts";

const files = projectFiles("src").filter((file) => /\.tsx?$/u.test(file));
const imports = files.flatMap(importsOf);
const allowed: Readonly<Record<string, readonly string[]>> = modules;
const owners: Readonly<Record<string, readonly string[]>> = packageModules;
const exceptions: Readonly<Record<string, readonly string[]>> = dynamicOnly;

const show = ({ from, specifier, kind }: Import): string => `${from} → ${specifier} (${kind})`;
const packageOf = (specifier: string): string =>
  specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");

/** Returns the circles of a table of allowed imports, each from the first name that closes it. */
function circlesIn(table: Readonly<Record<string, readonly string[]>>): readonly (readonly string[])[] {
  const circles: string[][] = [];
  const finished = new Set<string>();
  const visit = (name: string, path: readonly string[]): void => {
    const start = path.indexOf(name);
    if (start !== -1) return void circles.push([...path.slice(start), name]);
    if (finished.has(name)) return;
    for (const other of table[name] ?? []) visit(other, [...path, name]);
    finished.add(name);
  };
  for (const name of Object.keys(table)) visit(name, []);
  return circles;
}

test("a circle in a table of allowed imports is found", () => {
  expect(circlesIn({ a: [], b: ["a", "c"], c: ["b"] })).toEqual([["b", "c", "b"]]);
  expect(circlesIn({ a: ["b"], b: ["c"], c: [] })).toEqual([]);
});

describe("the rooms of src", () => {
  it("are all listed in scripts/layers.js, and no file is nested deeper than its rules match", () => {
    const unlisted = files.filter((file) => allowed[roomOfFile(file) ?? ""] === undefined);
    expect(unlisted).toEqual([]);
    expect(files.filter((file) => file.split("/").length - 2 > maxDepth)).toEqual([]);
  });

  it("import only the rooms listed for them", () => {
    const forbidden = imports.filter(({ from, target, kind }) => {
      const [room, other] = [roomOfFile(from) ?? "", roomOfFile(target ?? "")];
      if (other === undefined || other === room || allowed[room]?.includes(other)) return false;
      return !(kind === "dynamic" && exceptions[from]?.includes(other));
    });
    expect(forbidden.map(show)).toEqual([]);
  });

  it("import only lower layers of their folder", () => {
    /** Returns the layer of a file in a folder of `layers`: a subfolder, "" for a file of the folder itself, undefined outside. */
    const layerOf = (file: string, parent: string) => {
      if (!file.startsWith(`src/${parent}/`)) return undefined;
      const [first = "", ...rest] = file.slice(`src/${parent}/`.length).split("/");
      return rest.length === 0 ? "" : first;
    };
    const forbidden = Object.entries(layers as Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>).flatMap(
      ([parent, children]) =>
        imports.filter(({ from, target }) => {
          const [layer, other] = [layerOf(from, parent), layerOf(target ?? "", parent)];
          if (layer === undefined || other === undefined || layer === other) return false;
          const own = (ownFiles as Readonly<Record<string, string>>)[parent];
          if (layer === "") return own === "bottom";
          return other === "" ? own === undefined : children[layer]?.includes(other) !== true;
        }),
    );
    expect(forbidden.map(show)).toEqual([]);
    const folders = Object.entries(layers).flatMap(([parent, children]) => Object.keys(children).map((child) => `src/${parent}/${child}/`));
    expect(folders.filter((folder) => !files.some((file) => file.startsWith(folder)))).toEqual([]);
  });

  it("have rules without a circle, for rooms and for layers", () => {
    const tables = { src: allowed, ...(layers as Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>) };
    expect(
      Object.entries(tables).flatMap(([folder, table]) => circlesIn(table).map((circle) => `${folder}: ${circle.join(" → ")}`)),
    ).toEqual([]);
    expect(Object.entries(ownFiles).filter(([, position]) => position !== "bottom")).toEqual([]);
  });

  it("have rules for rooms and layers that exist", () => {
    const unknown = Object.entries({ src: allowed, ...layers }).flatMap(([folder, table]) =>
      Object.entries(table as Readonly<Record<string, readonly string[]>>).flatMap(([name, others]) =>
        others.filter((other) => !(other in table)).map((other) => `${folder}: ${name} → ${other}`),
      ),
    );
    expect(unknown).toEqual([]);
  });

  it("have no unused exception", () => {
    const unused = Object.entries(exceptions).filter(
      ([file, others]) => !others.every((other) => imports.some(({ from, target }) => from === file && roomOfFile(target ?? "") === other)),
    );
    expect(unused).toEqual([]);
  });

  it("use a reserved package only in its rooms", () => {
    const elsewhere = imports.filter(({ from, specifier }) => owners[packageOf(specifier)]?.includes(roomOfFile(from) ?? "") === false);
    expect(elsewhere.map(show)).toEqual([]);
  });

  it("load native code only by `await import()`", () => {
    const eager = imports.filter(({ specifier, kind }) => kind === "value" && nativePackages.includes(packageOf(specifier)));
    expect(eager.map(show)).toEqual([]);
  });
});

describe("the client-only entries", () => {
  it.each([
    "whetstone",
    "whetstone/client",
    "whetstone/trajectory",
    "whetstone/rollout",
    "whetstone/follow",
    "whetstone/errors",
    "whetstone/dataset",
    "whetstone/capture",
    "whetstone/environment",
    "whetstone/judge",
    "whetstone/graders",
    "whetstone/protocols",
    "whetstone/agent",
    "whetstone/scenarios",
    "whetstone/train",
    "whetstone/experiment",
    "whetstone/schema",
  ])("%s loads neither the service nor the engine", (name) => {
    const entry = entries.get(name);
    if (entry === undefined) throw new Error(`${name} is not an entry of package.json`);
    const loadedRooms = new Set([...loadedBy(entry)].map(roomOfFile));
    for (const room of ["service", "engine", "learner", "text/tokenizer", "testing", "cli"]) expect([...loadedRooms]).not.toContain(room);
  });
});

/** Cases that must be rejected: name, files, and the rule that rejects the first file. */
const REFUSED: readonly (readonly [string, Readonly<Record<string, string>>, string])[] = [
  ["an import of a higher room", { "base/util/a.ts": 'export { x } from "../schema/x.ts";' }, "no-restricted-imports"],
  ["engine → schema, deep down", { "engine/onnx/graph/a.ts": 'export { x } from "../../../base/schema/x.ts";' }, "no-restricted-imports"],
  ["engine → the room train", { "engine/onnx/a.ts": 'export { x } from "../../training/train/x.ts";' }, "no-restricted-imports"],
  [
    "a type import of a higher room",
    { "base/schema/a.ts": 'export type { X } from "../../library/client/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "a room of another wing by its path from src",
    { "library/rollout/b.ts": 'export { x } from "../../training/train/x.ts";' },
    "no-restricted-imports",
  ],
  ["a dynamic import", { "library/rollout/a.ts": 'export const load = () => import("../../service/x.ts");' }, "no-restricted-imports"],
  ["rxjs outside its rooms", { "library/client/a.ts": 'export { defer } from "rxjs";' }, "no-restricted-imports"],
  ["native code outside the engine", { "service/a.ts": 'export { Tensor } from "onnxruntime-node";' }, "no-restricted-imports"],
  [
    "engine: a sampler that imports the trainer",
    { "engine/onnx/sample/i.ts": 'export { x } from "../train/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "engine: a layer that imports the engine itself",
    { "engine/onnx/train/i.ts": 'export { x } from "../engine.ts";' },
    "no-restricted-imports",
  ],
  [
    "engine: an op that imports the model",
    { "engine/onnx/graph/ops/i.ts": 'export { x } from "../../model/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "chat: an earlier step that imports a later one",
    { "service/chat/request/i.ts": 'export { x } from "../answer/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "service: the pool of threads, which imports chat",
    { "service/work/i.ts": 'export { x } from "../chat/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "service: a chat step that imports the composition",
    { "service/chat/request/j.ts": 'export { x } from "../../x.ts";' },
    "no-restricted-imports",
  ],
  ["service: the store, which imports jobs", { "service/store/i.ts": 'export { x } from "../jobs/x.ts";' }, "no-restricted-imports"],
  [
    "service: a chat step that imports the routes",
    { "service/chat/prompt/j.ts": 'export { x } from "../../routes/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "grammar: a base file that imports the compiler",
    { "text/grammar/i.ts": 'export { x } from "./compile/x.ts";' },
    "no-restricted-imports",
  ],
  [
    "grammar: the compiler, deep down, that imports the decoder",
    { "text/grammar/compile/schema/i.ts": 'export { x } from "../../decode/x.ts";' },
    "no-restricted-imports",
  ],
  ["the package by its own name", { "base/util/b.ts": 'export { connect } from "whetstone";' }, "no-restricted-imports"],
  [
    "an import cycle",
    {
      "base/util/c.ts": 'import { d } from "./d.ts";\nexport const c = () => d;',
      "base/util/d.ts": 'import { c } from "./c.ts";\nexport const d = () => c;',
    },
    "no-cycle",
  ],
  [
    "a floating promise",
    { "base/util/e.ts": "const later = async () => 1;\nexport function e() {\n  later();\n}" },
    "no-floating-promises",
  ],
  [
    "a switch that forgets a case",
    { "base/util/f.ts": 'export function f(a: "b" | "c") {\n  switch (a) {\n    case "b":\n      return 1;\n  }\n  return 2;\n}' },
    "switch-exhaustiveness-check",
  ],
  ["a file of more than 350 lines", { "base/util/g.ts": "export {};\n".repeat(351) }, "max-lines"],
];

const ACCEPTED: Readonly<Record<string, string>> = {
  "base/schema/h.ts": 'export { x } from "../util/x.ts";',
  "engine/onnx/train/h.ts": 'export { x } from "../../../base/util/x.ts";',
  "engine/onnx/threads/h.ts": 'export { x } from "../train/h.ts";', // a folder of the engine, not the room `training/train`
  "text/grammar/compile/schema/h.ts": 'export { x } from "../../h.ts";',
  "text/grammar/h.ts": "export const x = 1;",
  "service/chat/h.ts": 'export { x } from "./answer/h.ts";',
  "service/chat/answer/h.ts": 'export { x } from "../request/h.ts";',
  "service/chat/request/h.ts": 'export { x } from "../../http/x.ts";',
  "service/h.ts": 'export { x } from "./routes/x.ts";',
  "library/follow/h.ts": 'export { defer } from "rxjs";',
  "library/client/embedded.ts": 'export const load = () => import("../../service/x.ts");',
};

describe("the linter", () => {
  const project = mkdtempSync(join(tmpdir(), "whetstone-lint-"));
  afterAll(() => rmSync(project, { recursive: true, force: true }));
  let found: ReadonlySet<string>;

  /** Runs the linter once over all cases, each in separate files; collects `file rule` for each finding. */
  beforeAll(() => {
    for (const name of ["oxlint.config.js", "scripts/layers.js", "tsconfig.json"]) cpSync(join(ROOT, name), join(project, name));
    writeFileSync(join(project, "package.json"), '{"type":"module"}');
    symlinkSync(join(ROOT, "node_modules"), join(project, "node_modules"), "junction");
    const targets = Object.fromEntries(
      ["base/util", "base/schema", "library/client", "training/train", "service"].map((room) => [
        `${room}/x.ts`,
        "export const x = 1;\nexport type X = 1;",
      ]),
    );
    for (const [path, code] of Object.entries(
      Object.assign({}, targets, ACCEPTED, ...REFUSED.map(([, given]) => given)) as Record<string, string>,
    )) {
      mkdirSync(dirname(join(project, "src", path)), { recursive: true });
      writeFileSync(join(project, "src", path), `${code}\n`);
    }
    const bin = join(ROOT, "node_modules/oxlint/bin/oxlint");
    const args = [bin, "-c", "oxlint.config.js", "--format", "json", "src"];
    const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: project, encoding: "utf8" });
    if (status !== 1) throw new Error(`Expected the linter to refuse, got status ${status}\n${stdout}${stderr}`);
    const { diagnostics } = JSON.parse(stdout) as { diagnostics: { filename: string; code: string; severity: string }[] };
    found = new Set(diagnostics.map(({ filename, code }) => `${filename.replaceAll("\\", "/")} ${/\((.*)\)/u.exec(code)?.[1]}`));
  });

  it.each(REFUSED)("rejects %s", (_, given, rule) => {
    expect([...found]).toContain(`src/${Object.keys(given)[0]} ${rule}`);
  });

  it("accepts the listed imports", () => {
    const accepted = Object.keys(ACCEPTED).map((path) => `src/${path}`);
    expect([...found].filter((place) => accepted.includes(place.split(" ")[0] ?? ""))).toEqual([]);
  });
});

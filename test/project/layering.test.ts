import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { dynamicOnly, maxDepth, nativePackages, packageRooms, rooms } from "../../scripts/layers.js";
import { entries, projectFiles, ROOT } from "./files.ts";
import { importsOf, loadedBy, roomOf, type Import } from "./imports.ts";

const files = projectFiles("src").filter((file) => file.endsWith(".ts"));
const imports = files.flatMap(importsOf);
const allowed: Readonly<Record<string, readonly string[]>> = rooms;
const owners: Readonly<Record<string, readonly string[]>> = packageRooms;
const exceptions: Readonly<Record<string, readonly string[]>> = dynamicOnly;

const show = ({ from, specifier, kind }: Import): string => `${from} → ${specifier} (${kind})`;
const packageOf = (specifier: string): string =>
  specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");

describe("the rooms of src", () => {
  it("are all listed in scripts/layers.js, and no file lies deeper than its rules reach", () => {
    const unlisted = files.filter((file) => allowed[roomOf(file) ?? ""] === undefined);
    expect(unlisted).toEqual([]);
    expect(files.filter((file) => file.split("/").length - 2 > maxDepth)).toEqual([]);
  });

  it("import each other only along the arrows", () => {
    const forbidden = imports.filter(({ from, target, kind }) => {
      const [room, other] = [roomOf(from) ?? "", roomOf(target ?? "")];
      if (other === undefined || other === room || allowed[room]?.includes(other)) return false;
      return !(kind === "dynamic" && exceptions[from]?.includes(other));
    });
    expect(forbidden.map(show)).toEqual([]);
  });

  it("have no exception that is no longer used", () => {
    const unused = Object.entries(exceptions).filter(
      ([file, others]) => !others.every((other) => imports.some(({ from, target }) => from === file && roomOf(target ?? "") === other)),
    );
    expect(unused).toEqual([]);
  });

  it("use a package that belongs to few rooms only there", () => {
    const elsewhere = imports.filter(({ from, specifier }) => owners[packageOf(specifier)]?.includes(roomOf(from) ?? "") === false);
    expect(elsewhere.map(show)).toEqual([]);
  });

  it("load native code only by `await import()`", () => {
    const eager = imports.filter(({ specifier, kind }) => kind === "value" && nativePackages.includes(packageOf(specifier)));
    expect(eager.map(show)).toEqual([]);
  });
});

describe("the thin entries", () => {
  it.each([
    "whetstone",
    "whetstone/dataset",
    "whetstone/capture",
    "whetstone/environment",
    "whetstone/agent",
    "whetstone/train",
    "whetstone/schema",
  ])("%s loads neither the service nor the engine", (name) => {
    const entry = entries.get(name);
    if (entry === undefined) throw new Error(`${name} is not an entry of package.json`);
    const loadedRooms = new Set([...loadedBy(entry)].map(roomOf));
    for (const room of ["service", "engine", "learner", "tokenizer", "testing", "cli"]) expect([...loadedRooms]).not.toContain(room);
  });
});

/** What must be refused: the name of the case, the files it consists of, and the rule that refuses the first of them. */
const REFUSED: readonly (readonly [string, Readonly<Record<string, string>>, string])[] = [
  ["an arrow backwards", { "util/a.ts": 'export { x } from "../schema/x.ts";' }, "no-restricted-imports"],
  ["engine → schema, deep down", { "engine/onnx/graph/a.ts": 'export { x } from "../../../schema/x.ts";' }, "no-restricted-imports"],
  ["engine → the room train", { "engine/onnx/a.ts": 'export { x } from "../../train/x.ts";' }, "no-restricted-imports"],
  ["a backward arrow for a type", { "schema/a.ts": 'export type { X } from "../client/x.ts";' }, "no-restricted-imports"],
  ["a dynamic import", { "rollout/a.ts": 'export const load = () => import("../service/x.ts");' }, "no-restricted-imports"],
  ["rxjs outside its rooms", { "client/a.ts": 'export { defer } from "rxjs";' }, "no-restricted-imports"],
  ["native code outside the engine", { "service/a.ts": 'export { Tensor } from "onnxruntime-node";' }, "no-restricted-imports"],
  ["the package by its own name", { "util/b.ts": 'export { connect } from "whetstone";' }, "no-restricted-imports"],
  [
    "an import cycle",
    {
      "util/c.ts": 'import { d } from "./d.ts";\nexport const c = () => d;',
      "util/d.ts": 'import { c } from "./c.ts";\nexport const d = () => c;',
    },
    "no-cycle",
  ],
  ["a floating promise", { "util/e.ts": "const later = async () => 1;\nexport function e() {\n  later();\n}" }, "no-floating-promises"],
  [
    "a switch that forgets a case",
    { "util/f.ts": 'export function f(a: "b" | "c") {\n  switch (a) {\n    case "b":\n      return 1;\n  }\n  return 2;\n}' },
    "switch-exhaustiveness-check",
  ],
  ["a file of more than 600 lines", { "util/g.ts": "export {};\n".repeat(601) }, "max-lines"],
];

const ACCEPTED: Readonly<Record<string, string>> = {
  "schema/h.ts": 'export { x } from "../util/x.ts";',
  "engine/onnx/train/h.ts": 'export { x } from "../../../util/x.ts";',
  "engine/onnx/sample/h.ts": 'export { x } from "../train/h.ts";', // a folder of the engine, not the room `train`
  "jobs/h.ts": 'export { defer } from "rxjs";',
  "client/embedded.ts": 'export const load = () => import("../service/x.ts");',
};

describe("the linter", () => {
  const project = mkdtempSync(join(tmpdir(), "whetstone-lint-"));
  afterAll(() => rmSync(project, { recursive: true, force: true }));
  let found: ReadonlySet<string>;

  /** One run over all cases, each in files of its own: `file rule` of whatever the linter finds. */
  beforeAll(() => {
    for (const name of ["oxlint.config.js", "scripts/layers.js", "tsconfig.json"]) cpSync(join(ROOT, name), join(project, name));
    writeFileSync(join(project, "package.json"), '{"type":"module"}');
    symlinkSync(join(ROOT, "node_modules"), join(project, "node_modules"), "junction");
    const targets = Object.fromEntries(
      ["util", "schema", "client", "train", "service"].map((room) => [`${room}/x.ts`, "export const x = 1;\nexport type X = 1;"]),
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

  it.each(REFUSED)("refuses %s", (_, given, rule) => {
    expect([...found]).toContain(`src/${Object.keys(given)[0]} ${rule}`);
  });

  it("accepts imports along the arrows", () => {
    const accepted = Object.keys(ACCEPTED).map((path) => `src/${path}`);
    expect([...found].filter((place) => accepted.includes(place.split(" ")[0] ?? ""))).toEqual([]);
  });
});

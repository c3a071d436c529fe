/** Compares the contributor guide and the architecture page with the files and rooms of the project. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { modules } from "../../scripts/layers.js";
import { read, ROOT } from "./files.ts";

const allowed: Readonly<Record<string, readonly string[]>> = modules;
const codeOf = (text: string): string[] => [...text.matchAll(/`([^`\n]+)`/gu)].map((match) => match[1] ?? "");

it.each(["CONTRIBUTING.md", "SECURITY.md", "docs/explanation/architecture.md"])("%s names only files that exist", (document) => {
  const paths = codeOf(read(document)).filter((code) => /^(?:src|test|scripts|docs|recipes|examples)\/[\w./-]*$/u.test(code));
  expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
});

it("lists names that exist in the files of the same row", () => {
  const rows = read("CONTRIBUTING.md").matchAll(/^\| (`[^|]+`) \| (.+) \|$/gmu);
  const missing = [...rows].flatMap(([, files = "", change = ""]) => {
    const sources = codeOf(files).flatMap((file) => (/\.(?:ts|py)$/u.test(file) && !file.includes("<") ? [read(file)] : []));
    const names = codeOf(change).filter((code) => /^[a-z_]\w*[A-Z_]\w*$|^[A-Z]\w+$/u.test(code));
    return sources.length === 0 ? [] : names.filter((name) => !sources.some((source) => source.includes(name)));
  });
  expect(missing).toEqual([]);
});

it("lists every room on the architecture page, with only the imports that the room may have", () => {
  const table = read("docs/explanation/architecture.md").split("\n## Layout of the source\n")[1]?.split("\n## ")[0] ?? "";
  let wing = "";
  const rows = [...table.matchAll(/^\| (`[^|]+` )?\| (`[^|]+ )?\| .+ \| ([^|]+) \|$/gmu)].map(
    ([, first = "", rooms = "", imports = ""]) => {
      wing = codeOf(first)[0] ?? wing;
      return { names: rooms === "" ? [wing] : codeOf(rooms).map((room) => `${wing}/${room}`), imports: codeOf(imports) };
    },
  );
  expect(rows.flatMap(({ names }) => names).toSorted()).toEqual(Object.keys(modules).toSorted());
  const forbidden = rows.flatMap(({ names, imports }) =>
    names.flatMap((name) =>
      imports.flatMap((other) => (allowed[name]?.some((each) => each.split("/").at(-1) === other) ? [] : [`${name} → ${other}`])),
    ),
  );
  expect(forbidden).toEqual([]);
});

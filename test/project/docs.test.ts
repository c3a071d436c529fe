import { existsSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { blocks, packageJson, projectFiles, read, ROOT, type Block } from "./files.ts";

const documents = projectFiles().filter((file) => file.endsWith(".md"));

/** Type-checks all blocks as one program; each is a module of its own. Nothing is written to disk. */
function typeErrors(given: readonly Block[]): string[] {
  const config = ts.parseConfigFileTextToJson("tsconfig.json", read("tsconfig.json")).config as { compilerOptions: unknown };
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT);
  const host = ts.createCompilerHost(options);
  const byName = new Map(given.map((block) => [block.name, block]));
  const program = ts.createProgram([...byName.keys()], options, {
    ...host,
    fileExists: (name) => byName.has(name) || host.fileExists(name),
    readFile: (name) => byName.get(name)?.code ?? host.readFile(name),
    getSourceFile: (name, version, ...rest) => {
      const block = byName.get(name);
      return block ? ts.createSourceFile(name, block.code, version) : host.getSourceFile(name, version, ...rest);
    },
  });
  return given.flatMap((block) => {
    const source = program.getSourceFile(block.name);
    if (source === undefined) throw new Error(`${block.name} was not compiled`);
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map((diagnostic) => {
      const line = block.line + source.getLineAndCharacterOfPosition(diagnostic.start ?? 0).line;
      return `${block.document}:${line}: ${ts.flattenDiagnosticMessageText(diagnostic.messageText, " ")}`;
    });
  });
}

/** The anchors of a document's headings, as code hosts make them. */
function anchors(document: string): Set<string> {
  const headings = withoutCode(document).matchAll(/^#+ +(.*)$/gmu);
  const slug = (text: string): string =>
    text
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .trim()
      .replaceAll(" ", "-");
  return new Set([...headings].map((heading) => slug(heading[1] ?? "")));
}

function withoutCode(document: string): string {
  return read(document).replaceAll(/^ *```.*?^ *```$/gmsu, "");
}

function brokenLinks(document: string): string[] {
  const links = [
    ...withoutCode(document)
      .replaceAll(/`[^`]*`/gu, "")
      .matchAll(/\]\(([^)\s]+)[^)]*\)/gu),
  ].map((match) => match[1] ?? "");
  return links.filter((link) => {
    if (/^[a-z]+:/u.test(link)) return false; // another host: not ours to keep alive
    const [path = "", anchor] = link.split("#");
    const target = path === "" ? document : normalize(join(dirname(document), decodeURIComponent(path)));
    if (!existsSync(join(ROOT, target))) return true;
    return anchor !== undefined && target.endsWith(".md") && !anchors(target).has(anchor);
  });
}

describe("the documents", () => {
  it("have TypeScript blocks that type-check against the package", () => {
    const all = documents.flatMap(blocks);
    expect(all.length).toBeGreaterThan(0);
    expect(typeErrors(all)).toEqual([]);
    // The types of the client libraries take their time, the more so while other tests run.
  }, 120_000);

  it("would fail on a block that does not type-check", () => {
    const code = 'import { connect } from "whetstone";\nconst port: number = connect;\n';
    const block = { name: join(ROOT, "docs/wrong.md.0.ts"), code, document: "docs/wrong.md", line: 7 };
    expect(typeErrors([block])).toEqual([expect.stringMatching(/^docs\/wrong\.md:8: Type .* is not assignable to type 'number'/u)]);
  });

  it.each(documents)("%s has no broken internal link", (document) => {
    expect(brokenLinks(document)).toEqual([]);
  });

  it.each(documents)("%s names only npm scripts that exist", (document) => {
    const named = [...read(document).matchAll(/npm run (?:-s |--silent )?([\w:-]+)/gu)].map((match) => match[1] ?? "");
    expect(named.filter((name) => !(name in packageJson.scripts))).toEqual([]);
  });
});

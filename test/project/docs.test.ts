import { existsSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import ts from "typescript";
import { beforeAll, describe, expect, it } from "vitest";
import { blocks, packageJson, projectFiles, read, ROOT, type Block } from "./files.ts";

const documents = projectFiles().filter((file) => file.endsWith(".md"));
const sources = projectFiles("src").filter((file) => file.endsWith(".ts"));

/** Names of the benchmarks of `npm run bench`, sorted. */
const benchmarks = projectFiles("test/bench").flatMap((file) => /([\w-]+)\.bench\.ts$/u.exec(file)?.[1] ?? []);

/** Values that examples in doc comments may use without declaring them, with their types. */
const EXAMPLE_VALUES: Readonly<Record<string, string>> = {
  service: 'import("whetstone").Service',
  model: 'import("whetstone").Model',
  job: 'import("whetstone").Job',
  policy: 'import("whetstone").Policy',
  group: 'import("whetstone").TrajectoryGroup',
  groups: 'readonly import("whetstone").TrajectoryGroup[]',
  finished: 'import("whetstone").Trajectory',
  environment: 'import("whetstone").Environment<{ readonly question: string; readonly answer: string }>',
  client: 'import("whetstone/agent").McpClient',
  engine: 'import("whetstone/engine").Engine',
  published: 'import("whetstone/engine").PolicyVersion',
  line: "string",
};

/**
 * The examples in the doc comments of a source file. An example may use the exports of its file and {@link EXAMPLE_VALUES} without an
 * import; it imports everything else, as a user would.
 */
function examples(file: string): Block[] {
  const text = read(file);
  const exported = [...text.matchAll(/^export (?:abstract |async )*(function\*?|class|const|interface|type) (\w+)/gmu)];
  return [...text.matchAll(/^ *\* @example\n *\* ```ts\n(.*?)^ *\* ```$/gmsu)].map((match, index) => {
    const code = (match[1] ?? "").replaceAll(/^ *\* ?/gmu, "");
    const declared = declaredNames(code);
    const isFree = (name: string) => !declared.has(name) && new RegExp(`\\b${name}\\b`, "u").test(code);
    const imports = exported.flatMap(([, kind = "", name = ""]) =>
      isFree(name) ? [/^(?:interface|type)$/u.test(kind) ? `type ${name}` : name] : [],
    );
    const values = Object.entries(EXAMPLE_VALUES).filter(([name]) => isFree(name));
    const lines = [
      code,
      `import { ${[...new Set(imports)].join(", ")} } from "./${basename(file)}";`,
      ...values.map(([name, type]) => `declare let ${name}: ${type};`),
    ];
    const line = text.slice(0, match.index).split("\n").length + 2;
    return { name: join(ROOT, `${file}.example${index}.ts`), code: `${lines.join("\n")}\nexport {};\n`, document: file, line };
  });
}

/** Names that the top-level statements of a module declare or import. */
function declaredNames(code: string): Set<string> {
  const names = new Set<string>();
  const add = (name: ts.BindingName | ts.Identifier | undefined): void => {
    if (name === undefined) return;
    if (ts.isIdentifier(name)) names.add(name.text);
    else for (const element of name.elements) if (ts.isBindingElement(element)) add(element.name);
  };
  for (const statement of ts.createSourceFile("example.ts", code, ts.ScriptTarget.Latest).statements) {
    if (ts.isVariableStatement(statement)) for (const { name } of statement.declarationList.declarations) add(name);
    else if (ts.isFunctionDeclaration(statement) || ts.isClassDeclaration(statement)) add(statement.name);
    else if (ts.isImportDeclaration(statement)) {
      const { name, namedBindings } = statement.importClause ?? {};
      add(name);
      if (namedBindings && ts.isNamedImports(namedBindings)) for (const element of namedBindings.elements) add(element.name);
    }
  }
  return names;
}

/** Block with an error in its second line. */
const wrong: Block = {
  name: join(ROOT, "docs/wrong.md.0.ts"),
  code: 'import { connect } from "whetstone";\nconst port: number = connect;\n',
  document: "docs/wrong.md",
  line: 7,
};

/** Type-checks all blocks as one program, which takes most of the time; each is a module of its own. Nothing is written to disk. */
function typeErrors(given: readonly Block[]): string[] {
  const config = ts.parseConfigFileTextToJson("tsconfig.json", read("tsconfig.json")).config as { compilerOptions: unknown };
  const { options } = ts.convertCompilerOptionsFromJson(config.compilerOptions, ROOT);
  const host = ts.createCompilerHost(options);
  const byName = new Map(given.map((block) => [block.name, block]));
  const folders = new Set([...byName.keys()].map((name) => dirname(name)));
  const program = ts.createProgram([...byName.keys()], options, {
    ...host,
    directoryExists: (name) => folders.has(name) || host.directoryExists?.(name) === true,
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
    if (/^[a-z]+:/u.test(link)) return false; // links to other hosts are not checked
    const [path = "", anchor] = link.split("#");
    const target = path === "" ? document : normalize(join(dirname(document), decodeURIComponent(path)));
    if (!existsSync(join(ROOT, target))) return true;
    return anchor !== undefined && target.endsWith(".md") && !anchors(target).has(anchor);
  });
}

describe("the documents", () => {
  let errors: readonly string[] = [];
  const all = [...documents.flatMap(blocks), ...sources.flatMap(examples), wrong];

  // Checking the types of the client libraries is slow while other tests run.
  beforeAll(() => {
    errors = typeErrors(all);
  }, 120_000);

  it.each([
    ["the documents have TypeScript blocks", /\.md:/u, 40],
    ["doc comments have examples", /\.ts:/u, 100],
  ])("%s that type-check against the package", (_, place, count) => {
    expect(all.filter(({ document, line }) => place.test(`${document}:${line}`)).length).toBeGreaterThan(count);
    expect(errors.filter((error) => place.test(error) && !error.startsWith(wrong.document))).toEqual([]);
  });

  it("reports a block that does not type-check", () => {
    const found = errors.filter((error) => error.startsWith(wrong.document));
    expect(found).toEqual([expect.stringMatching(/^docs\/wrong\.md:8: Type .* is not assignable to type 'number'/u)]);
  });

  it.each(documents)("%s has no broken internal link", (document) => {
    expect(brokenLinks(document)).toEqual([]);
  });

  it.each(documents)("%s names only npm scripts that exist", (document) => {
    const named = [...read(document).matchAll(/npm run (?:-s |--silent )?([\w:-]+)/gu)].map((match) => match[1] ?? "");
    expect(named.filter((name) => !(name in packageJson.scripts))).toEqual([]);
  });

  it.each(documents)("%s names only benchmarks that exist", (document) => {
    const named = [...read(document).matchAll(/npm run bench -- ([a-z]+(?:-[a-z]+)*)/gu)].map((match) => match[1] ?? "");
    expect(named.filter((name) => !benchmarks.includes(name))).toEqual([]);
  });

  it("have a README of at most 700 words, code included", () => {
    expect(read("README.md").split(/\s+/u).length).toBeLessThanOrEqual(700);
  });

  it("state the reason for --ignore-scripts on one page", () => {
    const stating = documents.filter((file) => /`--ignore-scripts` skips/u.test(read(file)));
    expect(stating).toEqual(["docs/how-to/install.md"]);
  });

  it("list every benchmark on the performance page", () => {
    const section = read("docs/explanation/performance.md").split("\n## All benchmarks\n")[1] ?? "";
    const listed = [...section.matchAll(/^\| `([a-z]+(?:-[a-z]+)*)[^`]*` \|/gmu)].map((match) => match[1] ?? "");
    expect(listed.toSorted()).toEqual(benchmarks);
  });

  it.each(["src", "recipes", "examples", "scripts"])("named in %s exist", (folder) => {
    const named = projectFiles(folder).flatMap((file) => [...read(file).matchAll(/(?<![\w/])docs\/[\w./-]+\.md/gu)].map(String));
    expect(named.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});

describe("the notebook", () => {
  const FOLDER = "docs/notebook/";
  const entries = documents.filter((file) => file.startsWith(FOLDER)).map((file) => file.slice(FOLDER.length));
  const dated = entries.filter((file) => file !== "README.md");

  it.each(dated)("has a date and the four parts in %s", (file) => {
    expect(file).toMatch(/^\d{4}-\d{2}-\d{2}-[a-z0-9-]+\.md$/u);
    const headings = [...withoutCode(FOLDER + file).matchAll(/^## (.*)$/gmu)].map((match) => match[1]);
    expect(headings).toEqual(["Question", "Attempt", "Numbers", "Conclusion"]);
  });

  it("lists every entry once in its index, under its date", () => {
    const sections = read(`${FOLDER}README.md`).split("\n## ").slice(1);
    const listed = sections.flatMap((section) => {
      const links = [...section.matchAll(/^- \[[^\]]+\]\(([^)]+)\): \S/gmu)].map((match) => match[1] ?? "");
      expect(links.filter((link) => !link.startsWith(section.slice(0, "YYYY-MM-DD".length)))).toEqual([]);
      return links;
    });
    expect(listed.toSorted()).toEqual(dated);
  });
});

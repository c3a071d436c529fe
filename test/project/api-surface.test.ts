import { execFile } from "node:child_process";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { entries, read, ROOT } from "./files.ts";

/** Maximum number of names in the root entry, including types. */
const ROOT_NAMES = 60;

const { options } = ts.convertCompilerOptionsFromJson(
  (ts.parseConfigFileTextToJson("tsconfig.json", read("tsconfig.json")).config as { compilerOptions: unknown }).compilerOptions,
  ROOT,
);
const program = ts.createProgram(
  [...entries.values()].map((file) => join(ROOT, file)),
  { ...options, allowJs: false },
);
const checker = program.getTypeChecker();

/** Returns the sorted exported names of an entry; types are marked, because they do not exist at run time. */
function surface(file: string): string[] {
  const source = program.getSourceFile(join(ROOT, file));
  const module = source && checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`Expected ${file} to be a module`);
  const names = checker.getExportsOfModule(module).map((symbol) => {
    const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
    return target.flags & ts.SymbolFlags.Value ? symbol.name : `type ${symbol.name}`;
  });
  return names.toSorted();
}

describe("the public names", () => {
  // A difference is a change of the public interface: update the snapshot (`-u`) and the changelog.
  it.each([...entries])("of %s match the recorded list", (_, file) => {
    expect(surface(file).join("\n")).toMatchSnapshot();
  });

  it(`of the root number at most ${ROOT_NAMES}`, () => {
    expect(surface("src/index.ts").length).toBeLessThanOrEqual(ROOT_NAMES);
  });
});

describe("the generated API reference", () => {
  it("documents every entry point", () => {
    const { entryPoints } = JSON.parse(read("typedoc.json")) as { readonly entryPoints: readonly string[] };
    expect(entryPoints.toSorted()).toEqual([...entries.values()].toSorted());
  });
});

describe("the published types", () => {
  it("contain no `any`", { timeout: 120_000 }, async () => {
    const out = await mkdtemp(join(tmpdir(), "whetstone-types-"));
    try {
      // The native compiler writes them in a tenth of the time; `npm run typecheck` checks the types.
      const compiler = join(ROOT, "node_modules/typescript-native/bin/tsc");
      const options = ["--outDir", out, "--declarationMap", "false", "--noCheck"];
      await promisify(execFile)(process.execPath, [compiler, "-p", "tsconfig.build.json", ...options], { cwd: ROOT });
      const files = (await readdir(out, { recursive: true })).filter((name) => name.endsWith(".d.ts"));
      expect(files.length).toBeGreaterThan(100);
      const found: string[] = [];
      for (const name of files) {
        const text = await readFile(join(out, name), "utf8");
        const visit = (node: ts.Node): void => {
          if (node.kind === ts.SyntaxKind.AnyKeyword) found.push(`${name}: ${text.slice(Math.max(0, node.pos - 60), node.end)}`);
          ts.forEachChild(node, visit);
        };
        visit(ts.createSourceFile(name, text, ts.ScriptTarget.Latest));
      }
      expect(found).toEqual([]);
    } finally {
      await rm(out, { recursive: true, force: true });
    }
  });
});

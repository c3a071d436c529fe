import { dirname, join, normalize } from "node:path";
import ts from "typescript";
import { roomOf } from "../../scripts/layers.js";
import { read } from "./files.ts";

/** Import of a source file. */
export interface Import {
  readonly from: string;
  /** As written. */
  readonly specifier: string;
  /** Imported file of the project; undefined for a package. */
  readonly target: string | undefined;
  /** `type` does not exist at run time; `dynamic` loads only when executed. */
  readonly kind: "value" | "type" | "dynamic";
}

const known = new Map<string, readonly Import[]>();

/** Returns all imports, re-exports and `import()` calls of `file`, except `import()` with a computed name. */
export function importsOf(file: string): readonly Import[] {
  const found = known.get(file) ?? parsedImports(file);
  known.set(file, found);
  return found;
}

function parsedImports(file: string): Import[] {
  const source = ts.createSourceFile(file, read(file), ts.ScriptTarget.ES2023, false);
  const found: Import[] = [];
  const add = (specifier: ts.Expression | undefined, kind: Import["kind"]): void => {
    if (specifier === undefined || !ts.isStringLiteralLike(specifier)) return;
    const target = specifier.text.startsWith(".") ? normalize(join(dirname(file), specifier.text)) : undefined;
    found.push({ from: file, specifier: specifier.text, target, kind });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node))
      add(node.moduleSpecifier, node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword ? "type" : "value");
    else if (ts.isExportDeclaration(node)) add(node.moduleSpecifier, node.isTypeOnly ? "type" : "value");
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal as ts.Expression, "type");
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0], "dynamic");
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** Returns all files that importing `file` loads at once. */
export function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  for (const { target, kind } of importsOf(file)) if (kind === "value" && target !== undefined) loadedBy(target, seen);
  return seen;
}

/** Returns the room of a file: `src/engine/port.ts` → `engine`, `src/base/errors.ts` → `base/errors`; undefined outside the rooms. */
export function roomOfFile(file: string): string | undefined {
  return file.startsWith("src/") ? roomOf(file.slice("src/".length).replace(/\.tsx?$/u, "")) : undefined;
}

/** Doc comments of the public interface: every name has one, and functions state parameters, results, errors and an example. */
import { existsSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { entries, projectFiles, read, ROOT } from "./files.ts";

/** Words of a doc comment beyond the words of the name. */
const MIN_WORDS = 3;
/** Share of the public functions with complete tags. */
const MIN_COMPLETE = 0.95;

/** Methods that need no tags: their result is the object's own data, and no caller passes arguments. */
const PLAIN_METHODS = new Set(["toJSON", "toString"]);

const SRC = join(ROOT, "src");

// Only the package's own sources are read: resolving and parsing packages would take most of the time.
const { options } = ts.convertCompilerOptionsFromJson({ module: "nodenext", target: "es2023", noLib: true, types: [] }, ROOT);
const program = ts.createProgram(
  [...entries.values()].map((file) => join(ROOT, file)),
  options,
  {
    ...ts.createCompilerHost(options),
    resolveModuleNameLiterals: (literals, from) =>
      literals.map(({ text }) => {
        const file = resolve(dirname(from), text);
        if (!text.startsWith(".") || !existsSync(file)) return { resolvedModule: undefined };
        return { resolvedModule: { resolvedFileName: file, extension: ts.Extension.Ts, isExternalLibraryImport: false } };
      }),
  },
);
const checker = program.getTypeChecker();

/** A declaration that users of the package see. */
interface PublicName {
  /** `src/library/client/job.ts: Job.cancel` */
  readonly label: string;
  readonly name: string;
  /** All overloads of a function or method; one declaration otherwise. */
  readonly declarations: readonly ts.Node[];
  /** Class or interface of a member. */
  readonly owner: ts.Node | null;
}

function docs(node: ts.Node): readonly ts.JSDoc[] {
  return ts.getJSDocCommentsAndTags(node).filter((found) => ts.isJSDoc(found));
}

function isInternal(node: ts.Node): boolean {
  return ts.getJSDocTags(node).some((tag) => tag.tagName.text === "internal");
}

function isHidden(member: ts.ClassElement | ts.TypeElement): boolean {
  const flags = ts.getCombinedModifierFlags(member);
  if (flags & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) return true;
  return (member.name !== undefined && ts.isPrivateIdentifier(member.name)) || isInternal(member);
}

function target(symbol: ts.Symbol): ts.Symbol {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

/** Symbols that the types of a declaration mention. Function bodies and types of which only a property is used are not visited. */
function mentioned(node: ts.Node): ts.Symbol[] {
  if (ts.isBlock(node) || ts.isIndexedAccessTypeNode(node)) return [];
  const name = ts.isTypeReferenceNode(node) ? node.typeName : ts.isExpressionWithTypeArguments(node) ? node.expression : undefined;
  const symbol = name && checker.getSymbolAtLocation(name);
  const found = symbol ? [target(symbol)] : [];
  node.forEachChild((child) => void found.push(...mentioned(child)));
  return found;
}

/** Whether a symbol is exported by an entry, or needs no page: a type parameter, a property, or a declaration outside of the project. */
function hasPage(symbol: ts.Symbol): boolean {
  const own = (symbol.declarations ?? []).filter((node) => node.getSourceFile().fileName.startsWith(SRC) && !isInternal(node));
  const isDeclared = (node: ts.Node) =>
    ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node) || ts.isClassDeclaration(node) || ts.isVariableDeclaration(node);
  return exported.has(symbol) || !own.some(isDeclared);
}

/** Returns the property of `Type["property"]` if the type has no page: the page then has the type of the property. */
function propertyOf(node: ts.Node): ts.Symbol | undefined {
  if (!ts.isIndexedAccessTypeNode(node) || !ts.isTypeReferenceNode(node.objectType)) return undefined;
  const object = checker.getSymbolAtLocation(node.objectType.typeName);
  if (object === undefined || hasPage(target(object))) return undefined;
  return checker.getTypeFromTypeNode(node.objectType).getProperty(node.indexType.getText().slice(1, -1));
}

/** Symbols that the page of a declaration refers to: types, and constants whose properties have the type. */
function references(node: ts.Node): ts.Symbol[] {
  if (ts.isBlock(node)) return [];
  const property = propertyOf(node);
  if (property !== undefined) return (property.declarations ?? []).flatMap(references);
  const name = ts.isTypeReferenceNode(node) ? node.typeName : isElementOf(node) ? node.exprName : undefined;
  const symbol = name && checker.getSymbolAtLocation(name);
  const found = symbol ? [target(symbol)] : [];
  node.forEachChild((child) => void found.push(...references(child)));
  return found;
}

/** Whether a node is the `typeof` of `(typeof CONSTANT)[number]`. Other uses of `typeof` are replaced by the type of the constant. */
function isElementOf(node: ts.Node): node is ts.TypeQueryNode {
  return ts.isTypeQueryNode(node) && ts.isParenthesizedTypeNode(node.parent) && ts.isIndexedAccessTypeNode(node.parent.parent);
}

/** Properties without a comment of the type literals in a declaration, except in parameters. */
function undocumented(node: ts.Node): string[] {
  if (ts.isBlock(node) || ts.isParameter(node)) return [];
  const members = ts.isTypeLiteralNode(node)
    ? node.members.filter((member) => ts.isPropertySignature(member) && !isDiscriminant(member) && docs(member).length === 0)
    : [];
  const found = members.map(nameOf);
  node.forEachChild((child) => void found.push(...undocumented(child)));
  return found;
}

/** Whether a member distinguishes the variants of a union: its type is a single literal, which needs no description. */
function isDiscriminant(member: ts.ClassElement | ts.TypeElement): boolean {
  return ts.isPropertySignature(member) && member.type !== undefined && ts.isLiteralTypeNode(member.type);
}

function membersOf(declaration: ts.Declaration): readonly (ts.ClassElement | ts.TypeElement)[] {
  const members: readonly (ts.ClassElement | ts.TypeElement)[] =
    ts.isClassDeclaration(declaration) || ts.isInterfaceDeclaration(declaration) ? declaration.members : [];
  return members.filter((member) => !isHidden(member) && !ts.isIndexSignatureDeclaration(member) && !isDiscriminant(member));
}

function nameOf(member: ts.ClassElement | ts.TypeElement): string {
  return ts.isConstructorDeclaration(member) ? "constructor" : (member.name?.getText() ?? "");
}

/** Exports of the entries. */
const exported = new Set(
  [...entries.values()].flatMap((file) => {
    const source = program.getSourceFile(join(ROOT, file));
    const module = source && checker.getSymbolAtLocation(source);
    if (module === undefined) throw new Error(`Expected ${file} to be a module`);
    return checker.getExportsOfModule(module).map(target);
  }),
);

/** Exports of the entries, the types that their signatures mention, and the members of both. */
function publicNames(): PublicName[] {
  const waiting = [...exported];
  const seen = new Set<ts.Symbol>();
  const names: PublicName[] = [];
  for (let symbol = waiting.shift(); symbol !== undefined; symbol = waiting.shift()) {
    if (seen.has(symbol)) continue;
    seen.add(symbol);
    const declarations = (symbol.declarations ?? []).filter((node) => node.getSourceFile().fileName.startsWith(SRC) && !isInternal(node));
    for (const owner of declarations.filter((node) => !ts.isTypeParameterDeclaration(node))) {
      const where = `${relative(ROOT, owner.getSourceFile().fileName)}: ${symbol.name}`;
      if (owner === declarations[0]) names.push({ label: where, name: symbol.name, declarations, owner: null });
      const members = membersOf(owner);
      for (const name of new Set(members.map(nameOf))) {
        const overloads = members.filter((member) => nameOf(member) === name);
        names.push({ label: `${where}.${name}`, name, declarations: overloads, owner });
      }
      // Constructors are skipped: they may take internal types. Members contain the public types.
      const visible = ts.isClassDeclaration(owner) ? [...(owner.heritageClauses ?? []), ...membersOf(owner)] : [owner];
      waiting.push(...visible.flatMap(mentioned));
    }
  }
  return names;
}

function text(comment: ts.JSDoc["comment"]): string {
  return ts.getTextOfJSDocComment(comment) ?? "";
}

/** Members of the same name of base classes and interfaces, which document an override without a comment of its own. */
function inherited(name: string, owner: ts.Node): readonly ts.Node[] {
  if (!(ts.isClassDeclaration(owner) || ts.isInterfaceDeclaration(owner))) return [];
  const bases = (owner.heritageClauses ?? []).flatMap(({ types }) => types).flatMap(mentioned);
  return bases.flatMap(({ members, declarations = [] }) => [
    ...(members?.get(ts.escapeLeadingUnderscores(name))?.declarations ?? []),
    ...declarations.flatMap((base) => inherited(name, base)),
  ]);
}

/** Number of words that a doc comment adds to the words of the name. */
function addedWords({ name, declarations, owner }: PublicName): number {
  const own = declarations.flatMap(docs);
  const found = own.length > 0 || owner === null ? own : inherited(name, owner).flatMap(docs);
  const words = found.flatMap(({ comment }) => text(comment).match(/[\p{L}\d-]+/gu) ?? []);
  const nameWords = name.match(/\p{Lu}?\p{Ll}+|\p{Lu}+|\d+/gu) ?? [];
  const known = new Set(nameWords.map((word) => word.toLowerCase()));
  return words.filter((word) => !known.has(word.toLowerCase())).length;
}

function signatures({ declarations }: PublicName): ts.SignatureDeclaration[] {
  return declarations.flatMap((node) => {
    if (ts.isFunctionDeclaration(node) && declarations.length > 1 && node.body) return []; // the implementation of overloads
    const isFunction = ts.isFunctionDeclaration(node) || ts.isMethodDeclaration(node) || ts.isMethodSignature(node);
    return isFunction || ts.isConstructorDeclaration(node) ? [node] : [];
  });
}

function tags(nodes: readonly ts.Node[], name: string): string[] {
  const found = nodes.flatMap((node) => ts.getJSDocTags(node)).filter(({ tagName }) => tagName.text === name);
  return found.map(({ comment }) => text(comment).trim()).filter((comment) => comment !== "");
}

/** Uses of a member in an example of its class or interface. */
function uses(name: string, owner: ts.Node): RegExp {
  if (name === "constructor") return new RegExp(`(?:new|extends) ${(owner as ts.ClassDeclaration).name?.text}\\b`, "u");
  if (name === "[Symbol.asyncIterator]") return /for await \(/u;
  if (name === "[Symbol.asyncDispose]") return /await using /u;
  if (name === "[Symbol.dispose]") return /(?<!await )using /u;
  return new RegExp(`\\b${name}(?:\\(|: )`, "u");
}

/** Tags that a function lacks. */
function missingTags({ name, owner, declarations }: PublicName, functions: readonly ts.SignatureDeclaration[]): string[] {
  const parameters = functions.flatMap((node) => node.parameters);
  const documented = parameters.filter((parameter) => ts.getJSDocParameterTags(parameter).length > 0).map(({ name }) => name.getText());
  const missing = new Set(
    parameters
      .map(({ name }) => name.getText())
      .filter((name) => !documented.includes(name))
      .map((name) => `@param ${name}`),
  );
  const isProcedure = functions.every((node) => /^(?:void|Promise<void>)$/u.test(node.type?.getText() ?? "") || node.type === undefined);
  if (!isProcedure && tags(declarations, "returns").length === 0) missing.add("@returns");
  const shared = owner === null ? [] : tags([owner], "example").filter((example) => uses(name, owner).test(example));
  if (tags(declarations, "example").length === 0 && shared.length === 0) missing.add("@example");
  return [...missing];
}

const names = publicNames();
/** Interfaces and type aliases that an entry exports. */
const pages = [...exported].flatMap((symbol) =>
  (symbol.declarations ?? [])
    .filter((node) => (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) && !isInternal(node))
    .map((node) => ({ label: `${relative(ROOT, node.getSourceFile().fileName)}: ${symbol.name}`, node })),
);
const functions = names.flatMap((name) => {
  const found = PLAIN_METHODS.has(name.name) ? [] : signatures(name);
  return found.length === 0 ? [] : [{ name, missing: missingTags(name, found) }];
});

describe("the doc comments of public names", () => {
  it("exist, and add information to the name", () => {
    expect(names.length).toBeGreaterThan(700);
    expect(names.filter((name) => addedWords(name) < MIN_WORDS).map(({ label }) => label)).toEqual([]);
  });

  // `npm run docs` checks both for everything it renders, in half a minute; this finds most of it in seconds.
  it("are on a page: an entry exports each type that a public type mentions", () => {
    const unknown = pages.flatMap(({ label, node }) =>
      references(node).flatMap((symbol) => (hasPage(symbol) ? [] : [`${label}: ${symbol.name}`])),
    );
    expect(unknown).toEqual([]);
  });

  it("exist for the properties of type literals", () => {
    expect(pages.flatMap(({ label, node }) => undocumented(node).map((name) => `${label}: ${name}`))).toEqual([]);
  });

  it(`have the tags of functions, for at least ${MIN_COMPLETE * 100} %`, () => {
    const incomplete = functions.filter(({ missing }) => missing.length > 0);
    expect(functions.length).toBeGreaterThan(120);
    if (1 - incomplete.length / functions.length >= MIN_COMPLETE) return;
    expect(incomplete.map(({ name, missing }) => `${name.label}: ${missing.join(", ")}`)).toEqual([]);
  });

  it("state errors with their class and code, or the signal's reason", () => {
    const codes = projectFiles("src").flatMap((file) =>
      [...read(file).matchAll(/class (\w+) extends \w+ \{[^}]*?readonly code = "(\w+)"/gu)].map(([, name, code]) => `${name} \`${code}\``),
    );
    const thrown = names.flatMap(({ label, declarations }) => tags(declarations, "throws").map((text) => ({ label, text })));
    const isNamed = (text: string) => /^the signal's reason/iu.test(text) || codes.some((code) => text.startsWith(code));
    expect(thrown.length).toBeGreaterThan(100);
    expect(thrown.filter(({ text }) => !isNamed(text)).map(({ label, text }) => `${label}: ${text}`)).toEqual([]);
  });
});

/**
 * Finds the local names of a scope. Python's Jinja determines them before it renders: a name that a scope assigns before it reads the name
 * is local. Until the assignment it is undefined, also for loops and macros inside of the scope, even if an outer scope defines it.
 */

import type { TemplateExpression, Statement, Target } from "./nodes.ts";

/** Names of one scope. */
export interface ScopeNames {
  /** Every name that the scope itself reads or assigns. */
  readonly used: ReadonlySet<string>;
  /** Names that are undefined in the scope until they are assigned. */
  readonly local: ReadonlySet<string>;
}

/** First use of each name: `local` if the scope assigns it, `outer` if the scope reads it or may leave it to an outer scope. */
type FirstUses = Map<string, "local" | "outer">;

/**
 * Finds the names of a scope.
 *
 * @param isKnownOutside - Whether a scope around it uses the name.
 */
export function namesOf(statements: readonly Statement[], isKnownOutside: (name: string) => boolean): ScopeNames {
  const uses: FirstUses = new Map();
  visitAll(statements, uses, isKnownOutside);
  const local = [...uses].filter(([, use]) => use === "local").map(([name]) => name);
  return { used: new Set(uses.keys()), local: new Set(local) };
}

/** Records the first use of each name in statements, without the bodies that have a scope of their own. */
function visitAll(statements: readonly Statement[], uses: FirstUses, isKnownOutside: (name: string) => boolean): void {
  const assign = (name: string): void => {
    if (!uses.has(name)) uses.set(name, isKnownOutside(name) ? "outer" : "local");
  };
  for (const statement of statements) {
    switch (statement.kind) {
      case "print":
        recordReads(statement.value, uses);
        break;
      case "if":
        visitBranches(statement, uses, isKnownOutside);
        break;
      case "for":
        recordReads(statement.iterable, uses);
        break;
      case "set":
        recordReads(statement.value, uses);
        assignTarget(statement.target, uses, assign);
        break;
      case "set-block":
        assignTarget(statement.target, uses, assign);
        break;
      case "macro":
        assign(statement.macro.name);
        break;
      case "call-block":
        recordReads(statement.call, uses);
        break;
      case "filter-block":
        recordReads(statement.filter, uses);
        break;
      case "with":
        for (const value of statement.values) recordReads(value, uses);
        break;
      default:
        break;
    }
  }
}

/** Records the names of branches as `outer`: another branch may be taken, and then the name comes from outside. */
function visitBranches(statement: Statement & { readonly kind: "if" }, uses: FirstUses, isKnownOutside: (name: string) => boolean): void {
  recordReads(statement.test, uses);
  for (const branch of [statement.body, statement.otherwise]) {
    const usesInBranch: FirstUses = new Map(uses);
    visitAll(branch, usesInBranch, isKnownOutside);
    for (const name of usesInBranch.keys()) if (!uses.has(name)) uses.set(name, "outer");
  }
}

/** Records the names of a target. An attribute of a namespace is assigned, but the namespace itself is read. */
function assignTarget(target: Target, uses: FirstUses, assign: (name: string) => void): void {
  if (target.kind === "tuple") for (const item of target.items) assignTarget(item, uses, assign);
  else if (target.kind === "name") assign(target.name);
  else if (!uses.has(target.name)) uses.set(target.name, "outer");
}

/** Returns every name that statements read, at any depth. Targets of assignments are not read. */
export function readNames(statements: readonly Statement[]): ReadonlySet<string> {
  const names = new Set<string>();
  visitNames(statements, (name) => names.add(name));
  return names;
}

/** Records every name in an expression as read. */
function recordReads(node: TemplateExpression, uses: FirstUses): void {
  visitNames(node, (name) => {
    if (!uses.has(name)) uses.set(name, "outer");
  });
}

/** Calls `visit` with each name in a part of a syntax tree, found by the generic shape of its nodes, except targets of assignments. */
function visitNames(node: unknown, visit: (name: string) => void): void {
  if (typeof node !== "object" || node === null) return;
  const { kind, name } = node as { readonly kind?: unknown; readonly name?: unknown };
  if (kind === "constant") return;
  if (kind === "name" && typeof name === "string") visit(name);
  for (const [key, part] of Object.entries(node)) if (key !== "target" && key !== "targets") visitNames(part, visit);
}

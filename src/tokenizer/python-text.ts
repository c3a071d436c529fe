/**
 * Values as templates print them. Templates are written for Python, where `{{ true }}` prints `True` and a mapping prints
 * with single quotes; the template library prints JSON instead, nothing for `none`, and joins mappings as `[object Map]`.
 */

/** A value of the template library. */
export interface RuntimeValue {
  readonly type: string;
  readonly value: unknown;
}

/** A node of a parsed template. */
export interface Statement {
  readonly type: string;
}

/** An expression whose value becomes text: what stands between `{{` and `}}`, and what `~` and `| string` are applied to. */
export interface Printed extends Statement {
  readonly type: "Printed";
  readonly expressions: readonly Statement[];
}

/** Nodes of a block that are not expressions: they yield text already, or none. */
const STATEMENTS: ReadonlySet<string> = new Set([
  "If",
  "For",
  "Break",
  "Continue",
  "Set",
  "Macro",
  "Comment",
  "CallStatement",
  "FilterStatement",
  "StringLiteral",
]);

/** Where a node keeps the statements of its blocks. */
const BLOCKS: ReadonlySet<string> = new Set(["body", "alternate", "defaultBlock"]);

/** Makes every place of a parsed template that makes text of a value a {@link Printed} node; changes the template itself. */
export function withPrinted<T>(node: T): T {
  if (typeof node !== "object" || node === null) return node;
  if (node instanceof Map) {
    for (const [key, value] of node as Map<unknown, unknown>) node.set(key, withPrinted(value));
    return node;
  }
  const parts = node as Record<string, unknown>;
  for (const [key, value] of Object.entries(parts)) {
    const inner: unknown = withPrinted(value);
    parts[key] = BLOCKS.has(key) && Array.isArray(inner) ? (inner as Statement[]).map(printed) : inner;
  }
  return concatenation(node as unknown as Statement) as T;
}

function printed(statement: Statement): Statement {
  return STATEMENTS.has(statement.type) || isPrinted(statement) ? statement : print(statement);
}

/** `a ~ b` and `a | string`. */
function concatenation(node: Statement): Statement {
  const { operator, left, right, operand, filter } = node as Statement &
    Partial<Record<"left" | "right" | "operand", Statement>> & {
      readonly operator?: { readonly value?: unknown };
      readonly filter?: Statement & { readonly value?: unknown };
    };
  if (node.type === "BinaryExpression" && operator?.value === "~" && left && right) return print(left, right);
  if (node.type === "FilterExpression" && filter?.type === "Identifier" && filter.value === "string" && operand) return print(operand);
  return node;
}

function print(...expressions: readonly Statement[]): Printed {
  return { type: "Printed", expressions };
}

/** Whether a node is one that {@link withPrinted} made. */
export function isPrinted(statement: Statement | undefined): statement is Printed {
  return statement?.type === "Printed";
}

/** `str(value)` of Python. */
export function pythonText({ type, value }: RuntimeValue): string {
  if (type === "UndefinedValue") return "";
  return typeof value === "string" ? value : pythonRepr({ type, value });
}

function pythonRepr({ type, value }: RuntimeValue): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return type === "FloatValue" ? pythonFloat(value) : String(value);
  if (typeof value === "string") return quoted(value);
  if (Array.isArray(value)) {
    const items = (value as readonly RuntimeValue[]).map(pythonRepr);
    if (type === "TupleValue") return items.length === 1 ? `(${items[0]},)` : `(${items.join(", ")})`;
    return `[${items.join(", ")}]`;
  }
  if (value instanceof Map) {
    const entries = [...(value as ReadonlyMap<string, RuntimeValue>)];
    return `{${entries.map(([key, item]) => `${quoted(key)}: ${pythonRepr(item)}`).join(", ")}}`;
  }
  throw new Error(`a ${type} cannot be printed`);
}

/** Shortest digits that give the number back, with an exponent below 10⁻⁴ and from 10¹⁶ on. */
function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const [digits = "", exponentText = "0"] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  if (value !== 0 && (exponent < -4 || exponent >= 16))
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  const text = Object.is(value, -0) ? "-0" : String(value);
  return text.includes(".") ? text : `${text}.0`;
}

const SHORT_ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };

/** A string literal: single quotes unless only they occur in it, everything unprintable escaped. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text.replaceAll(/[\\\p{C}\p{Z}]|'/gu, (character) => {
    if (character === " ") return character;
    if (character === "'") return quote === "'" ? "\\'" : "'";
    const short = SHORT_ESCAPES[character];
    if (short !== undefined) return short;
    const code = character.codePointAt(0) ?? 0;
    const hex = code.toString(16);
    if (code < 0x100) return `\\x${hex.padStart(2, "0")}`;
    return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
  });
  return quote + body + quote;
}

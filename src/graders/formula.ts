/** Formulas of multi graders: arithmetic with the scores of the graders, parsed to a tree and never executed as code. */
import { shortened } from "../base/util/shown.ts";
import { GraderError } from "./errors.ts";

/** Max characters of a formula. */
export const MAX_FORMULA_LENGTH = 4000;
/** Max levels of nested parentheses, function calls, signs and powers. */
export const MAX_FORMULA_DEPTH = 64;

/** Parsed formula. */
export type Formula =
  | { readonly type: "number"; readonly value: number }
  | { readonly type: "variable"; readonly name: string }
  | { readonly type: "negation"; readonly operand: Formula }
  | { readonly type: "operation"; readonly operator: Operator; readonly left: Formula; readonly right: Formula }
  | { readonly type: "call"; readonly name: FunctionName; readonly operands: readonly Formula[] };

/** Operators with their computation. */
const OPERATIONS = {
  "+": (a: number, b: number) => a + b,
  "-": (a: number, b: number) => a - b,
  "*": (a: number, b: number) => a * b,
  "/": (a: number, b: number) => a / b,
  "^": (a: number, b: number) => a ** b,
};
/** Operator of a formula. */
type Operator = keyof typeof OPERATIONS;

/** Functions by name, with their number of operands; `Infinity` for one or more. `log` is the natural logarithm. */
const FUNCTIONS = {
  min: { operands: Infinity, apply: Math.min },
  max: { operands: Infinity, apply: Math.max },
  abs: { operands: 1, apply: Math.abs },
  floor: { operands: 1, apply: Math.floor },
  ceil: { operands: 1, apply: Math.ceil },
  exp: { operands: 1, apply: Math.exp },
  sqrt: { operands: 1, apply: Math.sqrt },
  log: { operands: 1, apply: Math.log },
} satisfies Record<string, { readonly operands: number; readonly apply: (...values: number[]) => number }>;
/** Name of a function of formulas. */
type FunctionName = keyof typeof FUNCTIONS;

/** Names of the functions, which are no variables. */
export const FUNCTION_NAMES = Object.keys(FUNCTIONS);

/** Whether a name is the name of a function. */
const isFunctionName = (name: string): name is FunctionName => Object.hasOwn(FUNCTIONS, name);

/** Token with the white space before it: a number, a name, or any other character; at the end of the formula, nothing. */
const TOKEN = /\s*(?:((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\S)|$)/guy;

/** Token of a formula. */
interface Token {
  readonly type: "number" | "name" | "symbol" | "end";
  readonly text: string;
  /** Index of its first character. */
  readonly position: number;
}

/** Splits a formula into tokens; the last one is the end. */
function tokensOf(text: string): Token[] {
  return Array.from(text.matchAll(TOKEN), ({ 0: match, 1: number, 2: name, 3: symbol, index }) => {
    const token = number ?? name ?? symbol ?? "";
    let type: Token["type"] = "end";
    if (number !== undefined) type = "number";
    else if (name !== undefined) type = "name";
    else if (symbol !== undefined) type = "symbol";
    return { type, text: token, position: index + match.length - token.length };
  });
}

/** State of a parser. */
interface Parser {
  readonly text: string;
  readonly tokens: readonly Token[];
  readonly variables: readonly string[];
  /** Index of the next token. */
  index: number;
  /** Number of levels that enclose the next token; see {@link parseNested}. */
  depth: number;
}

/**
 * Parses a formula: numbers, variables, `+ - * / ^`, parentheses, and the functions min, max, abs, floor, ceil, exp, sqrt and log. `^`
 * binds closer than a sign before it and is right-associative: `-2^2` is −4, and `2^3^2` is 512.
 *
 * @param text - Formula of at most {@link MAX_FORMULA_LENGTH} characters, nested at most {@link MAX_FORMULA_DEPTH} levels deep.
 * @param variables - Names that stand for scores.
 * @throws GraderError `E_GRADER` with the flag `formula_parse_error`, or `invalid_variable_error` for an unknown name.
 */
export function parseFormula(text: string, variables: readonly string[]): Formula {
  if (text.length > MAX_FORMULA_LENGTH) {
    throw new GraderError("formula_parse_error", `Expected a formula of at most ${MAX_FORMULA_LENGTH} characters, got ${text.length}`);
  }
  const parser: Parser = { text, tokens: tokensOf(text), variables, index: 0, depth: 0 };
  const formula = parseSum(parser);
  if (peek(parser).type !== "end") throw unexpectedError(parser, "an operator or the end");
  return formula;
}

/** Computes the value of a formula; NaN or infinite outside the domain of a function, and after a division by 0. */
export function evaluateFormula(formula: Formula, scores: Readonly<Record<string, number>>): number {
  switch (formula.type) {
    case "number":
      return formula.value;
    case "variable":
      return scores[formula.name] ?? Number.NaN;
    case "negation":
      return -evaluateFormula(formula.operand, scores);
    case "operation":
      return OPERATIONS[formula.operator](evaluateFormula(formula.left, scores), evaluateFormula(formula.right, scores));
    case "call": {
      const apply: (...values: number[]) => number = FUNCTIONS[formula.name].apply;
      return apply(...formula.operands.map((operand) => evaluateFormula(operand, scores)));
    }
  }
}

/** Returns the next token without consuming it; after the last token, the end. */
function peek({ tokens, index }: Parser): Token {
  return tokens[index] ?? { type: "end", text: "", position: 0 };
}

/** Consumes and returns the next token if it is one of the symbols; null otherwise. */
function takeSymbol<Symbol extends string>(parser: Parser, symbols: readonly Symbol[]): Symbol | null {
  const { type, text } = peek(parser);
  const nextSymbol = symbols.find((symbol) => type === "symbol" && symbol === text);
  if (nextSymbol === undefined) return null;
  parser.index++;
  return nextSymbol;
}

/** Returns the error for the next token. */
function unexpectedError(parser: Parser, expected: string): GraderError {
  const { type, text, position } = peek(parser);
  const got = type === "end" ? "the end" : `\`${text}\` at position ${position + 1}`;
  return new GraderError("formula_parse_error", `Expected ${expected} in the formula \`${shortened(parser.text, 200)}\`, got ${got}`);
}

/** Parses `term + term − …`, where a term is `factor * factor / …`. */
function parseSum(parser: Parser): Formula {
  return parseChain(parser, ["+", "-"], (each) => parseChain(each, ["*", "/"], parseSigned));
}

/** Parses operands of operators with the same precedence, which are left-associative. */
function parseChain(parser: Parser, operators: readonly Operator[], parseOperand: (parser: Parser) => Formula): Formula {
  let left = parseOperand(parser);
  for (let operator = takeSymbol(parser, operators); operator !== null; operator = takeSymbol(parser, operators)) {
    left = { type: "operation", operator, left, right: parseOperand(parser) };
  }
  return left;
}

/** Parses a power with the signs before it. */
function parseSigned(parser: Parser): Formula {
  return parseNested(parser, () => {
    const sign = takeSymbol(parser, ["-", "+"]);
    if (sign === null) return parsePower(parser);
    const operand = parseSigned(parser);
    return sign === "-" ? { type: "negation", operand } : operand;
  });
}

/** Parses an operand with its exponent, if any. */
function parsePower(parser: Parser): Formula {
  const base = parsePrimary(parser);
  if (takeSymbol(parser, ["^"]) === null) return base;
  return { type: "operation", operator: "^", left: base, right: parseSigned(parser) };
}

/** Parses a number, a variable, a call or a formula in parentheses. */
function parsePrimary(parser: Parser): Formula {
  const { type, text } = peek(parser);
  if (type === "number") {
    parser.index++;
    return { type: "number", value: Number(text) };
  }
  if (type === "name") return isFunctionName(text) ? parseCall(parser, text) : parseVariable(parser, text);
  if (takeSymbol(parser, ["("]) === null) throw unexpectedError(parser, "a number, a grader, a function or `(`");
  const parenthesized = parseSum(parser);
  if (takeSymbol(parser, [")"]) === null) throw unexpectedError(parser, "an operator or `)`");
  return parenthesized;
}

/** Parses a variable. @throws GraderError `E_GRADER` with the flag `invalid_variable_error` for an unknown name */
function parseVariable(parser: Parser, name: string): Formula {
  if (!parser.variables.includes(name)) {
    const knownNames = `graders: ${parser.variables.join(", ")}; functions: ${FUNCTION_NAMES.join(", ")}`;
    const message = `Expected a grader or a function in the formula \`${shortened(parser.text, 200)}\`, got \`${name}\`; ${knownNames}`;
    throw new GraderError("invalid_variable_error", message);
  }
  parser.index++;
  return { type: "variable", name };
}

/** Parses a function with its operands. */
function parseCall(parser: Parser, name: FunctionName): Formula {
  parser.index++;
  if (takeSymbol(parser, ["("]) === null) throw unexpectedError(parser, `\`(\` after \`${name}\``);
  const operands = [parseSum(parser)];
  while (takeSymbol(parser, [","]) !== null) operands.push(parseSum(parser));
  if (takeSymbol(parser, [")"]) === null) throw unexpectedError(parser, "an operator, `,` or `)`");
  if (operands.length > FUNCTIONS[name].operands) {
    const message = `Expected one operand of \`${name}\` in the formula \`${shortened(parser.text, 200)}\`, got ${operands.length}`;
    throw new GraderError("formula_parse_error", message);
  }
  return { type: "call", name, operands };
}

/**
 * Parses one level deeper. Parentheses, calls, signs and powers all recurse through {@link parseSigned}, which alone counts the levels.
 *
 * @throws GraderError `E_GRADER` beyond {@link MAX_FORMULA_DEPTH} levels
 */
function parseNested(parser: Parser, parse: () => Formula): Formula {
  if (parser.depth >= MAX_FORMULA_DEPTH) {
    throw new GraderError("formula_parse_error", `Expected a formula nested at most ${MAX_FORMULA_DEPTH} levels deep, got more`);
  }
  parser.depth++;
  const formula = parse();
  parser.depth--;
  return formula;
}

import { runInNewContext } from "node:vm";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { GraderError } from "../../src/graders/index.ts";
import { evaluateFormula, MAX_FORMULA_DEPTH, MAX_FORMULA_LENGTH, parseFormula } from "../../src/graders/formula.ts";

const SCORES: Readonly<Record<string, number>> = { answer: 0.75, format: 1, _x1: -2 };
const VARIABLES = Object.keys(SCORES);

function valueOf(text: string): number {
  return evaluateFormula(parseFormula(text, VARIABLES), SCORES);
}

function errorOf(text: string): GraderError {
  try {
    parseFormula(text, VARIABLES);
  } catch (error) {
    if (error instanceof GraderError) return error;
    throw error;
  }
  throw new Error(`Expected \`${text}\` to be rejected`);
}

describe("a formula", () => {
  it.each<[string, number]>([
    ["0.8 * answer + 0.2 * format", 0.8],
    ["(answer + format) / 2", 0.875],
    ["8 - 4 - 2", 2],
    ["8 / 4 / 2", 1],
    ["2 + 3 * 4", 14],
    ["2^3^2", 512],
    ["-2^2", -4],
    ["2^-1", 0.5],
    ["--2", 2],
    ["+_x1", -2],
    ["4*-format", -4],
    ["1e3 + .5 + 2.", 1002.5],
    ["min(answer, format, 0.1)", 0.1],
    ["max(answer)", 0.75],
    ["abs(_x1) + floor(1.7) + ceil(1.2)", 5],
    ["exp(0) + sqrt(9) + log(exp(2))", 6],
    ["\t( ( answer ) )\n", 0.75],
  ])("%s is %d", (text, value) => {
    expect(valueOf(text)).toBeCloseTo(value, 12);
  });

  it.each<[string, string]>([
    ["", "got the end"],
    ["answer +", "got the end"],
    ["answer format", "got `format` at position 8"],
    ["(answer", "Expected an operator or `)`"],
    ["answer)", "got `)` at position 7"],
    ["answer ** 2", "got `*` at position 9"],
    ["answer % 2", "got `%` at position 8"],
    ["answer; format", "got `;` at position 7"],
    ["min()", "got `)` at position 5"],
    ["min", "Expected `(` after `min`"],
    ["sqrt(1, 2)", "Expected one operand of `sqrt`"],
    ["1 2", "got `2` at position 3"],
    ["answer.constructor", "got `.` at position 7"],
    ["answer[0]", "got `[` at position 7"],
  ])("`%s` does not parse", (text, part) => {
    expect(errorOf(text)).toMatchObject({ code: "E_GRADER", flag: "formula_parse_error" });
    expect(errorOf(text).message).toContain(part);
  });

  it.each(["unknown", "toString", "__proto__", "Math", "pow(2, 2)"])(
    "with the unknown name `%s` is rejected with the names that exist",
    (text) => {
      const { flag, message } = errorOf(text);
      expect(flag).toBe("invalid_variable_error");
      expect(message).toContain("graders: answer, format, _x1; functions: min, max, abs, floor, ceil, exp, sqrt, log");
    },
  );

  it("is limited in length and depth", () => {
    const longest = `1${" ".repeat(MAX_FORMULA_LENGTH - 1)}`;
    expect(valueOf(longest)).toBe(1);
    expect(errorOf(`${longest} `).message).toContain(`at most ${MAX_FORMULA_LENGTH} characters, got ${MAX_FORMULA_LENGTH + 1}`);
    const deepest = (levels: number) => `${"(".repeat(levels)}1${")".repeat(levels)}`;
    expect(valueOf(deepest(MAX_FORMULA_DEPTH - 1))).toBe(1);
    for (const text of [deepest(MAX_FORMULA_DEPTH), `${"-".repeat(MAX_FORMULA_DEPTH)}1`, `1${"^1".repeat(MAX_FORMULA_DEPTH)}`]) {
      expect(errorOf(text)).toMatchObject({
        flag: "formula_parse_error",
        message: expect.stringContaining(`at most ${MAX_FORMULA_DEPTH} levels`),
      });
    }
    expect(valueOf(`0${"+1".repeat(MAX_FORMULA_LENGTH / 2 - 1)}`)).toBe(MAX_FORMULA_LENGTH / 2 - 1);
  });
});

/** Expression with its text and its value, computed together. */
interface Expression {
  readonly text: string;
  readonly value: number;
}

const FUNCTIONS: Readonly<Record<string, (...values: number[]) => number>> = {
  abs: Math.abs,
  floor: Math.floor,
  ceil: Math.ceil,
  exp: Math.exp,
  sqrt: Math.sqrt,
  log: Math.log,
};
const OPERATORS: Readonly<Record<string, (a: number, b: number) => number>> = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "^": (a, b) => a ** b,
};

const { expression } = fc.letrec<{ expression: Expression; leaf: Expression }>((tie) => ({
  leaf: fc.oneof(
    fc.constantFrom(...VARIABLES).map((name) => ({ text: name, value: SCORES[name] ?? 0 })),
    fc.integer({ min: 0, max: 20 }).map((value) => ({ text: String(value), value })),
    fc.double({ min: 0, max: 1e6, noNaN: true }).map((value) => ({ text: String(value), value })),
  ),
  expression: fc.oneof(
    { maxDepth: 6, withCrossShrink: true },
    tie("leaf"),
    // Every operand is in parentheses, so that the reference needs no precedence.
    fc.tuple(tie("expression"), fc.constantFrom(...Object.keys(OPERATORS)), tie("expression")).map(([a, operator, b]) => ({
      text: `(${a.text}) ${operator} (${b.text})`,
      value: OPERATORS[operator]!(a.value, b.value),
    })),
    tie("expression").map(({ text, value }) => ({ text: `-(${text})`, value: -value })),
    fc.tuple(fc.constantFrom(...Object.keys(FUNCTIONS)), tie("expression")).map(([name, { text, value }]) => ({
      text: `${name}(${text})`,
      value: FUNCTIONS[name]!(value),
    })),
    fc.tuple(fc.constantFrom("min", "max"), fc.array(tie("expression"), { minLength: 1, maxLength: 4 })).map(([name, operands]) => ({
      text: `${name}(${operands.map(({ text }) => text).join(", ")})`,
      value: Math[name as "min" | "max"](...operands.map(({ value }) => value)),
    })),
  ),
}));

describe("a random formula", () => {
  test.prop([expression.filter(({ text }) => text.length <= MAX_FORMULA_LENGTH)])("has the value of its expression", ({ text, value }) => {
    expect(valueOf(text)).toBe(value);
  });

  test.prop([
    fc.array(fc.constantFrom("answer", "format", "2", "0.5"), { minLength: 2, maxLength: 12 }),
    fc.infiniteStream(fc.constantFrom("+", "-", "*", "/")),
  ])("without parentheses has the value of JavaScript's precedence", (operands, operators) => {
    const text = operands.map((operand, index) => (index === 0 ? operand : `${operators.next().value as string} ${operand}`)).join(" ");
    // The reference is JavaScript itself: the four operators have the same precedence there.
    expect(valueOf(text)).toBe(runInNewContext(text, { ...SCORES }));
  });
});

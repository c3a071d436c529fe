/** Tests of templates: `value is name(…)`. */

import { isCase } from "./casing.ts";
import { TemplateFailure, typeError, unsupported } from "./errors.ts";
import { Loop } from "./loop.ts";
import type { Meter } from "./meter.ts";
import { binary, compareValues, contains, equals, isIterable } from "./operators.ts";
import { toText } from "./print.ts";
import { type Builtin, builtin, callBuiltin } from "./signature.ts";
import { Callable, Dict, DictView, isFloat, isInt, type Keywords, Markup, PyIterator, Undefined, type TemplateValue } from "./values.ts";

type Test = Builtin<TemplateValue>;

/** Returns a test without arguments. */
const plainTest = (holds: (value: TemplateValue, meter: Meter) => boolean): Test => builtin("", (meter, value) => holds(value, meter));
/** Returns the test `lower` or `upper`. */
const caseTest = (wanted: "lower" | "upper"): Test =>
  plainTest((value, meter) => {
    const text = toText(meter, value);
    meter.chargeText(text.length * 4);
    return isCase(text, wanted);
  });
/** Returns a test with one argument. */
const binaryTest = (holds: (meter: Meter, left: TemplateValue, right: TemplateValue) => boolean): Test =>
  builtin("other, /", (meter, value, [other]) => holds(meter, value, other as TemplateValue));
/** Returns a test that compares; `holds` receives a negative number, zero or a positive number. */
const orderTest = (operator: string, holds: (order: number) => boolean): Test =>
  binaryTest((meter, left, right) => holds(compareValues(meter, operator, left, right)));

const notEqual = binaryTest((meter, left, right) => !equals(meter, left, right));
const less = orderTest("<", (order) => order < 0);
const lessOrEqual = orderTest("<=", (order) => order <= 0);
const greater = orderTest(">", (order) => order > 0);
const greaterOrEqual = orderTest(">=", (order) => order >= 0);

/** Returns the entries of a test with several names, separated by spaces. */
const aliased = (names: string, test: Test): Record<string, Test> => Object.fromEntries(names.split(" ").map((name) => [name, test]));

/** Supported tests by name. */
const TESTS: Readonly<Record<string, Test>> = {
  boolean: plainTest((value) => typeof value === "boolean"),
  callable: plainTest((value) => value instanceof Callable || value instanceof Loop || value instanceof Undefined),
  defined: plainTest((value) => !(value instanceof Undefined)),
  divisibleby: binaryTest((meter, value, by) => equals(meter, binary(meter, "%", value, by), 0)),
  even: plainTest((value, meter) => equals(meter, binary(meter, "%", value, 2), 0)),
  false: plainTest((value) => value === false),
  float: plainTest(isFloat),
  in: binaryTest((meter, value, container) => contains(meter, container, value)),
  integer: plainTest(isInt),
  iterable: plainTest(isIterable),
  lower: caseTest("lower"),
  mapping: plainTest((value) => value instanceof Dict),
  none: plainTest((value) => value === null),
  number: plainTest((value) => typeof value === "boolean" || isInt(value) || isFloat(value)),
  odd: plainTest((value, meter) => equals(meter, binary(meter, "%", value, 2), 1)),
  sameas: binaryTest((_, left, right) => {
    if (left === right && (left === null || typeof left === "boolean")) return true;
    if (left === null || right === null || typeof left === "boolean" || typeof right === "boolean") return false;
    return unsupported("the test `sameas` of values other than true, false and none");
  }),
  sequence: plainTest((value) => isIterable(value) && !(value instanceof DictView || value instanceof PyIterator)),
  string: plainTest((value) => typeof value === "string" || value instanceof Markup),
  true: plainTest((value) => value === true),
  undefined: plainTest((value) => value instanceof Undefined),
  upper: caseTest("upper"),
  ...aliased("eq equalto ==", binaryTest(equals)),
  ...aliased("ne !=", notEqual),
  ...aliased("lt lessthan <", less),
  ...aliased("le <=", lessOrEqual),
  ...aliased("gt greaterthan >", greater),
  ...aliased("ge >=", greaterOrEqual),
};

/** Tests of Python's Jinja that this engine does not support. */
const UNSUPPORTED_TESTS: ReadonlySet<string> = new Set(["escaped", "filter", "test"]);

/** Whether Python's Jinja has a test with this name, supported here or not. */
export function isTest(name: string): boolean {
  return Object.hasOwn(TESTS, name) || UNSUPPORTED_TESTS.has(name);
}

/** Applies the test `name`. */
export function applyTest(meter: Meter, name: string, value: TemplateValue, args: readonly TemplateValue[], keywords: Keywords): boolean {
  const test = Object.hasOwn(TESTS, name) ? TESTS[name] : undefined;
  if (test === undefined) {
    if (UNSUPPORTED_TESTS.has(name)) return unsupported(`the test \`${name}\``);
    throw new TemplateFailure(`No test named '${name}'.`);
  }
  meter.charge(1);
  const result = callBuiltin(meter, name, test, value, args, keywords);
  return typeof result === "boolean" ? result : typeError(`the test ${name} gave no boolean`);
}

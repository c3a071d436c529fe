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
const is = (holds: (value: TemplateValue, meter: Meter) => boolean): Test => builtin("", (meter, value) => holds(value, meter));
/** Returns the test `lower` or `upper`. */
const inCase = (wanted: "lower" | "upper"): Test =>
  is((value, meter) => {
    const text = toText(meter, value);
    meter.chargeText(text.length * 4);
    return isCase(text, wanted);
  });
/** Returns a test with one argument. */
const against = (holds: (meter: Meter, left: TemplateValue, right: TemplateValue) => boolean): Test =>
  builtin("other, /", (meter, value, [other]) => holds(meter, value, other as TemplateValue));
/** Returns a test that compares; `holds` receives a negative number, zero or a positive number. */
const ordered = (operator: string, holds: (order: number) => boolean): Test =>
  against((meter, left, right) => holds(compareValues(meter, operator, left, right)));

/** Returns the entries of a test with several names, separated by spaces. */
const aliased = (names: string, test: Test): Record<string, Test> => Object.fromEntries(names.split(" ").map((name) => [name, test]));

const TESTS: Readonly<Record<string, Test>> = {
  boolean: is((value) => typeof value === "boolean"),
  callable: is((value) => value instanceof Callable || value instanceof Loop || value instanceof Undefined),
  defined: is((value) => !(value instanceof Undefined)),
  divisibleby: against((meter, value, by) => equals(meter, binary(meter, "%", value, by), 0)),
  even: is((value, meter) => equals(meter, binary(meter, "%", value, 2), 0)),
  false: is((value) => value === false),
  float: is(isFloat),
  in: against((meter, value, container) => contains(meter, container, value)),
  integer: is(isInt),
  iterable: is(isIterable),
  lower: inCase("lower"),
  mapping: is((value) => value instanceof Dict),
  none: is((value) => value === null),
  number: is((value) => typeof value === "boolean" || isInt(value) || isFloat(value)),
  odd: is((value, meter) => equals(meter, binary(meter, "%", value, 2), 1)),
  sameas: against((_, left, right) => {
    if (left === right && (left === null || typeof left === "boolean")) return true;
    if (left === null || right === null || typeof left === "boolean" || typeof right === "boolean") return false;
    return unsupported("the test `sameas` of values other than true, false and none");
  }),
  sequence: is((value) => isIterable(value) && !(value instanceof DictView || value instanceof PyIterator)),
  string: is((value) => typeof value === "string" || value instanceof Markup),
  true: is((value) => value === true),
  undefined: is((value) => value instanceof Undefined),
  upper: inCase("upper"),
  ...aliased("eq equalto ==", against(equals)),
  ...aliased(
    "ne !=",
    against((meter, left, right) => !equals(meter, left, right)),
  ),
  ...aliased(
    "lt lessthan <",
    ordered("<", (order) => order < 0),
  ),
  ...aliased(
    "le <=",
    ordered("<=", (order) => order <= 0),
  ),
  ...aliased(
    "gt greaterthan >",
    ordered(">", (order) => order > 0),
  ),
  ...aliased(
    "ge >=",
    ordered(">=", (order) => order >= 0),
  ),
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

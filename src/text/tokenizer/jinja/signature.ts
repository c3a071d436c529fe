/** Built-in functions of the engine (filters, tests, methods) with Python's parameters, and the binding of call arguments to them. */

import { typeError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { type Keywords, Undefined, type TemplateValue } from "./values.ts";

/** Arguments in the order of the parameters; undefined or absent for a parameter that the call does not give. */
export type BoundArguments = readonly (TemplateValue | undefined)[];

/** Built-in function with its parameters. */
export interface Builtin<Self extends TemplateValue> {
  /** Names of the parameters. */
  readonly parameters: readonly string[];
  /** Number of parameters without a default, which come first. */
  readonly required: number;
  /** Number of parameters that a keyword cannot name, which come first. */
  readonly positional: number;
  /** Function of `self` (the value of a filter or test, or the object of a method) and the arguments. */
  readonly run: (meter: Meter, self: Self, args: BoundArguments) => TemplateValue;
}

/**
 * Makes a built-in function.
 *
 * @param signature - Parameters as in Python: `"sep=, maxsplit="` has two with defaults; `"x, /"` one that a keyword cannot name.
 */
export function builtin<Self extends TemplateValue>(signature: string, run: Builtin<Self>["run"]): Builtin<Self> {
  const parts = signature === "" ? [] : signature.split(", ");
  const parameters = parts.filter((part) => part !== "/");
  return {
    parameters: parameters.map((name) => name.replace("=", "")),
    required: parameters.filter((name) => !name.endsWith("=")).length,
    positional: Math.max(0, parts.indexOf("/")),
    run,
  };
}

/** Binds the arguments of a call to the parameters of a built-in function, and calls it. */
export function callBuiltin<Self extends TemplateValue>(
  meter: Meter,
  name: string,
  called: Builtin<Self>,
  self: Self,
  args: readonly TemplateValue[],
  keywords: Keywords,
): TemplateValue {
  const { parameters, required } = called;
  if (args.length > parameters.length) {
    return typeError(`${name}() takes at most ${parameters.length} argument(s) (${args.length} given)`);
  }
  let bound: BoundArguments = args;
  if (keywords.size > 0) {
    const withKeywords: (TemplateValue | undefined)[] = [...args];
    for (const [key, value] of keywords) {
      const index = parameters.indexOf(key);
      // Also for an unknown name, with the index -1.
      if (index < called.positional) return typeError(`${name}() got an unexpected keyword argument '${key}'`);
      if (index < args.length) return typeError(`${name}() got multiple values for argument '${key}'`);
      withKeywords[index] = value;
    }
    bound = withKeywords;
  }
  for (let index = 0; index < required; index++) {
    if (bound[index] === undefined) return typeError(`${name}() missing required argument: '${parameters[index] ?? ""}'`);
  }
  return called.run(meter, self, bound);
}

/** Applies a filter by its name. */
export type ApplyFilter = (
  meter: Meter,
  name: string,
  value: TemplateValue,
  args: readonly TemplateValue[],
  keywords: Keywords,
) => TemplateValue;

/** Filter: a built-in function, or a function that binds its arguments itself; `apply` applies another filter. */
export type Filter =
  | Builtin<TemplateValue>
  | ((meter: Meter, value: TemplateValue, args: readonly TemplateValue[], keywords: Keywords, apply: ApplyFilter) => TemplateValue);

/** Returns an argument that must be a text; `what` names it in the message. */
export function textArgument(value: TemplateValue | undefined, what: string): string {
  if (typeof value === "string") return value;
  if (value instanceof Undefined) return value.fail();
  return typeError(`${what} must be str`);
}

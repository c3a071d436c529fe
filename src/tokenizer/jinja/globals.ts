/** Functions that every template has: `range`, `namespace`, `dict`, `raise_exception`, `strftime_now`. */

import { formatTime } from "./clock.ts";
import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { iterate, itemsOf } from "./operators.ts";
import { toText } from "./print.ts";
import { Callable, Dict, type Keywords, Namespace, orElse, Range, typeName, Undefined, type Value } from "./values.ts";

/** Elements of a `range` in Python's sandbox, at most. */
const MAX_RANGE = 100_000;
/** Steps of one code of `strftime_now`; the names of days and months are looked up for the locale. */
const STEPS_PER_CODE = 100;

function range(args: readonly Value[], keywords: Keywords): Range {
  if (keywords.size > 0) return typeError("range() takes no keyword arguments");
  if (args.length === 0 || args.length > 3) return typeError(`range expected 1 to 3 arguments, got ${args.length}`);
  const [first = 0, second = 0, step = 1] = args.map((value) => {
    if (typeof value === "boolean") return value ? 1 : 0;
    if (value instanceof Undefined) return value.fail();
    if (typeof value === "number" && Number.isInteger(value)) return value;
    if (typeof value === "bigint") return unsupported("`range` with integers beyond 2**53");
    return typeError(`'${typeName(value)}' object cannot be interpreted as an integer`);
  });
  if (step === 0) return valueError("range() arg 3 must not be zero");
  const made = args.length === 1 ? new Range(0, first, 1) : new Range(first, second, step);
  if (made.length > MAX_RANGE) {
    throw new TemplateFailure(`OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (${MAX_RANGE}).`);
  }
  return made;
}

/** Returns `dict(...)`: pairs, or another mapping, and keywords. */
function dict(meter: Meter, args: readonly Value[], keywords: Keywords): Dict {
  if (args.length > 1) return typeError(`dict expected at most 1 argument, got ${args.length}`);
  const made = new Dict();
  const [given] = args;
  if (given instanceof Dict) for (const [key, value] of given.entries()) made.set(key, value);
  else if (given instanceof Undefined) return given.fail();
  else if (given instanceof Namespace) return typeError("'Namespace' object is not iterable");
  else if (given !== undefined) {
    for (const pair of iterate(meter, given)) {
      const [key, value, ...rest] = itemsOf(meter, pair);
      if (key === undefined || value === undefined || rest.length > 0)
        return valueError("dictionary update sequence element has not length 2");
      made.set(key, value);
    }
  }
  meter.charge(made.size + keywords.size);
  for (const [key, value] of keywords) made.set(key, value);
  return made;
}

/** `dict`. */
const DICT = new Callable((meter, args, keywords) => dict(meter, args, keywords), "TemplateDict");

/** Global names that Python's Jinja has and this engine lacks. */
export const OTHER_GLOBALS: ReadonlySet<string> = new Set(["lipsum", "cycler", "joiner", "self"]);

/** Global names and their values. */
export const GLOBALS: ReadonlyMap<string, Value> = new Map<string, Value>([
  ["range", new Callable((_, args, keywords) => range(args, keywords))],
  ["dict", DICT],
  ["namespace", new Callable((meter, args, keywords) => new Namespace(dict(meter, args, keywords)), "Namespace")],
  [
    "raise_exception",
    new Callable((meter, args) => {
      throw new TemplateFailure(toText(meter, orElse(args[0], new Undefined("no message"))));
    }),
  ],
  [
    "strftime_now",
    new Callable((meter, args) => {
      const [format] = args;
      if (typeof format !== "string") return typeError("strftime_now() expects a text");
      meter.chargeText(format.length * 4);
      meter.charge((format.split("%").length - 1) * STEPS_PER_CODE);
      return meter.made(formatTime(new Date(), format));
    }),
  ],
]);

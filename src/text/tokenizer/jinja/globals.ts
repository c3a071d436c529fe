/** Global functions of chat templates, as transformers provides them: `range`, `namespace`, `dict`, `raise_exception`, `strftime_now`. */

import { strftime } from "./clock.ts";
import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { iterateValue, itemsOf } from "./operators.ts";
import { toText } from "./print.ts";
import { Callable, Dict, integerArgument, type Keywords, Namespace, orElse, Range, Undefined, type TemplateValue } from "./values.ts";

/** Max length of a `range`, as in Jinja's `SandboxedEnvironment`. */
const MAX_RANGE = 100_000;
/** Cost of one format directive of `strftime_now` in steps of the {@link Meter}: names of days and months need a locale lookup. */
const STEPS_PER_DIRECTIVE = 100;

/** Python's `range(stop)` or `range(start, stop, step)`. */
function range(args: readonly TemplateValue[], keywords: Keywords): Range {
  if (keywords.size > 0) return typeError("range() takes no keyword arguments");
  if (args.length === 0 || args.length > 3) return typeError(`range expected 1 to 3 arguments, got ${args.length}`);
  const integers = args.map((value) =>
    typeof value === "bigint" ? unsupported("`range` with integers beyond 2**53") : integerArgument(value, "range()"),
  );
  const [first = 0, second = 0, step = 1] = integers;
  if (step === 0) return valueError("range() arg 3 must not be zero");
  const result = args.length === 1 ? new Range(0, first, 1) : new Range(first, second, step);
  if (result.length > MAX_RANGE) {
    throw new TemplateFailure(`OverflowError: Range too big. The sandbox blocks ranges larger than MAX_RANGE (${MAX_RANGE}).`);
  }
  return result;
}

/** Python's `dict(…)`: copies a mapping or an iterable of pairs, then adds the keywords. */
function dict(meter: Meter, args: readonly TemplateValue[], keywords: Keywords): Dict {
  if (args.length > 1) return typeError(`dict expected at most 1 argument, got ${args.length}`);
  const result = new Dict();
  const [source] = args;
  if (source instanceof Dict) for (const [key, value] of source.entries()) result.set(key, value);
  else if (source instanceof Undefined) return source.fail();
  else if (source instanceof Namespace) return typeError("'Namespace' object is not iterable");
  else if (source !== undefined) {
    for (const pair of iterateValue(meter, source)) {
      const items = itemsOf(meter, pair);
      if (items.length !== 2) return valueError("dictionary update sequence element has not length 2");
      const [key, value] = items as readonly [TemplateValue, TemplateValue];
      result.set(key, value);
    }
  }
  meter.charge(result.size + keywords.size);
  for (const [key, value] of keywords) result.set(key, value);
  return result;
}

/** Global names of Python's Jinja that this engine does not support; reading one fails with a message that names it. */
export const UNSUPPORTED_GLOBALS: ReadonlySet<string> = new Set(["lipsum", "cycler", "joiner", "self"]);

/** Values of the supported global names. */
export const GLOBALS: ReadonlyMap<string, TemplateValue> = new Map<string, TemplateValue>([
  ["range", new Callable((_, args, keywords) => range(args, keywords))],
  ["dict", new Callable((meter, args, keywords) => dict(meter, args, keywords), "TemplateDict")],
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
      meter.charge((format.split("%").length - 1) * STEPS_PER_DIRECTIVE);
      return meter.chargeResult(strftime(new Date(), format));
    }),
  ],
]);

/** Methods of Python's `str`, with their arguments in Python's terms. The functions of `text.ts` do the work. */

import { capitalize, CASING_COST, isCase, isTitle, swapCase, title } from "./casing.ts";
import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import { formatBraces } from "./format.ts";
import type { Meter } from "./meter.ts";
import { itemsOf } from "./operators.ts";
import { type Builtin, builtin, callBuiltin, textArgument } from "./signature.ts";
import {
  countOccurrences,
  isAllSpace,
  isBmpOnly,
  lengthOf,
  pointAt,
  pointsOf,
  replace,
  rsplit,
  type Sides,
  splitText,
  splitLines,
  strip,
  unitAt,
} from "./text.ts";
import { integerArgument, type Keywords, isTruthy, Tuple, typeName, type TemplateValue } from "./values.ts";

/** Characters for which `str.isdigit` holds although they are not decimal: superscripts, circled digits, numerals of some scripts. */
const OTHER_DIGITS =
  "\\xb2\\xb3\\xb9\\u1369-\\u1371\\u19da\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c\\u2488-\\u2490\\u24ea" +
  "\\u24f5-\\u24fd\\u24ff\\u2776-\\u277e\\u2780-\\u2788\\u278a-\\u2792\\u{10a40}-\\u{10a43}\\u{10e60}-\\u{10e68}\\u{11052}-\\u{1105a}\\u{1f100}-\\u{1f10a}";
const DIGITS = new RegExp(`^[\\p{Nd}${OTHER_DIGITS}]+$`, "u");

type Method = Builtin<string>;

/** Part of a text to search in. */
interface SearchedPart {
  readonly text: string;
  /** Position of the beginning of the part in the whole text, in code points. */
  readonly offset: number;
}

/** Returns the part of a text between the arguments `start` and `end` of a search; undefined if `start` is larger than `end`. */
function searchedPart(text: string, start: TemplateValue | undefined, end: TemplateValue | undefined): SearchedPart | undefined {
  if ((start === undefined || start === null) && (end === undefined || end === null)) return { text, offset: 0 };
  const size = lengthOf(text);
  const positionOf = (value: TemplateValue | undefined, otherwise: number): number => {
    if (value === undefined || value === null) return otherwise;
    const at = integerArgument(value, "slice");
    return at < 0 ? Math.max(0, at + size) : at;
  };
  const from = positionOf(start, 0);
  const to = Math.min(size, positionOf(end, size));
  if (from > to) return undefined;
  return { text: isBmpOnly(text) ? text.slice(from, to) : text.slice(unitAt(text, from), unitAt(text, to)), offset: from };
}

/** Returns `find`, `index` or a variant; `isRequired` for `index`, which fails if the text is not found. */
function finder(search: (text: string, wanted: string) => number, { isRequired }: { readonly isRequired: boolean }): Method {
  return builtin("sub, start=, end=, /", (meter, self, [sub, start, end]) => {
    const wanted = textArgument(sub, "the argument of find()");
    meter.chargeSearch(self.length, wanted.length);
    const part = searchedPart(self, start, end);
    const unit = part === undefined ? -1 : search(part.text, wanted);
    if (part !== undefined && unit >= 0) return part.offset + pointAt(part.text, unit);
    return isRequired ? valueError("substring not found") : -1;
  });
}

/** Returns `startswith` or `endswith`. */
function affix(matches: (text: string, affix: string) => boolean): Method {
  return builtin("prefix, start=, end=, /", (meter, self, [prefix, start, end]) => {
    const affixes = prefix instanceof Tuple ? prefix.items : [prefix as TemplateValue];
    meter.charge(affixes.length);
    const part = searchedPart(self, start, end);
    if (part === undefined) return false;
    return affixes.some((text) => {
      if (typeof text !== "string") return typeError(`first arg must be str or a tuple of str, not ${typeName(text)}`);
      meter.chargeText(text.length);
      return matches(part.text, text);
    });
  });
}

/** Returns `strip`, `lstrip` or `rstrip`. */
function stripper(sides: Sides): Method {
  return builtin("chars=, /", (meter, self, [chars]) => {
    return stripText(meter, self, sides, chars);
  });
}

/** Returns `split` or `rsplit`. */
function splitter(run: (text: string, separator: string | undefined, limit: number) => string[]): Method {
  return builtin("sep=, maxsplit=", (meter, self, [sep, maxsplit]) => {
    const separator = sep === undefined || sep === null ? undefined : textArgument(sep, "sep");
    if (separator === "") return valueError("empty separator");
    meter.chargeSearch(self.length, separator?.length ?? 1);
    const parts = run(self, separator, maxsplit === undefined ? -1 : integerArgument(maxsplit, "maxsplit"));
    meter.charge(parts.length);
    return parts;
  });
}

/** Returns `partition` or `rpartition`; `otherwise` returns the result for a text without the separator. */
function partitioner(search: (text: string, part: string) => number, otherwise: (text: string) => [string, string, string]): Method {
  return builtin("sep, /", (meter, self, [sep]) => {
    const separator = textArgument(sep, "sep");
    if (separator === "") return valueError("empty separator");
    meter.chargeSearch(self.length, separator.length);
    const at = search(self, separator);
    return new Tuple(at < 0 ? otherwise(self) : [self.slice(0, at), separator, self.slice(at + separator.length)]);
  });
}

/** Returns `ljust`, `rjust` or `center`; `paddingBefore` returns the number of fill characters before the text. */
function aligner(paddingBefore: (missing: number, width: number) => number): Method {
  return builtin("width, fillchar=, /", (meter, self, [width, fillchar]) => {
    const fill = fillchar === undefined ? " " : textArgument(fillchar, "the fill character");
    if (lengthOf(fill) !== 1) return typeError("The fill character must be exactly one character long");
    const wantedWidth = integerArgument(width as TemplateValue, "width");
    meter.chargeText(self.length);
    const missing = wantedWidth - lengthOf(self);
    if (missing <= 0) return self;
    meter.checkLength(self.length + missing * fill.length);
    const before = paddingBefore(missing, wantedWidth);
    return meter.chargeResult(fill.repeat(before) + self + fill.repeat(missing - before));
  });
}

/** Returns a method that tests a text. */
function predicate(holds: (text: string) => boolean): Method {
  return builtin("", (meter, self) => {
    meter.chargeText(self.length * 4);
    return holds(self);
  });
}

/** Returns a method that converts a text; `cost` is its cost relative to a linear pass. */
function mapper(map: (text: string) => string, cost = 1): Method {
  return builtin("", (meter, self) => {
    meter.chargeText(self.length * cost);
    return meter.chargeResult(map(self));
  });
}

/** Returns the number of fill characters that `str.center` puts before the text: half of them, rounded as CPython does. */
function centered(missing: number, width: number): number {
  return Math.floor(missing / 2) + (missing & width & 1);
}

const METHODS: Readonly<Record<string, Method>> = {
  capitalize: mapper(capitalize, CASING_COST),
  center: aligner(centered),
  count: builtin("sub, start=, end=, /", (meter, self, [sub, start, end]) => {
    const part = textArgument(sub, "the argument of count()");
    meter.chargeSearch(self.length, part.length);
    const searched = searchedPart(self, start, end);
    return searched === undefined ? 0 : countOccurrences(searched.text, part);
  }),
  endswith: affix((text, suffix) => text.endsWith(suffix)),
  expandtabs: builtin("tabsize=", (meter, self, [tabsize]) => {
    const size = tabsize === undefined ? 8 : integerArgument(tabsize, "tabsize");
    meter.checkLength(self.length + countOccurrences(self, "\t") * Math.max(0, size));
    let column = 0;
    let result = "";
    for (const point of self) {
      if (point === "\t") {
        const step = size > 0 ? size - (column % size) : 0;
        result += " ".repeat(step);
        column += step;
      } else {
        result += point;
        column = point === "\n" || point === "\r" ? 0 : column + 1;
      }
    }
    return meter.chargeResult(result);
  }),
  find: finder((text, part) => text.indexOf(part), { isRequired: false }),
  index: finder((text, part) => text.indexOf(part), { isRequired: true }),
  isalnum: predicate((text) => /^\p{L}+$/u.test(text) || /^[\p{L}\p{Nd}]+$/u.test(text) || isNumericWord(text)),
  isalpha: predicate((text) => /^\p{L}+$/u.test(text)),
  isascii: predicate((text) => !/[^\0-\x7f]/.test(text)),
  isdecimal: predicate((text) => /^\p{Nd}+$/u.test(text)),
  isdigit: predicate((text) => DIGITS.test(text)),
  islower: predicate((text) => isCase(text, "lower")),
  isprintable: predicate((text) => !/[\p{C}\p{Z}]/u.test(text.replaceAll(" ", ""))),
  isspace: predicate(isAllSpace),
  istitle: predicate(isTitle),
  isupper: predicate((text) => isCase(text, "upper")),
  join: builtin("iterable, /", (meter, self, [iterable]) => {
    const items = itemsOf(meter, iterable as TemplateValue);
    let length = 0;
    for (const [at, item] of items.entries()) {
      if (typeof item !== "string") return typeError(`sequence item ${at}: expected str instance, ${typeName(item)} found`);
      length += item.length + self.length;
    }
    meter.charge(items.length);
    meter.checkLength(length - self.length);
    return meter.chargeResult(items.join(self));
  }),
  ljust: aligner(() => 0),
  lower: mapper((text) => text.toLowerCase()),
  lstrip: stripper("left"),
  partition: partitioner(
    (text, part) => text.indexOf(part),
    (text) => [text, "", ""],
  ),
  removeprefix: builtin("prefix, /", (_, self, [prefix]) => {
    const text = textArgument(prefix, "removeprefix() argument");
    return self.startsWith(text) ? self.slice(text.length) : self;
  }),
  removesuffix: builtin("suffix, /", (_, self, [suffix]) => {
    const text = textArgument(suffix, "removesuffix() argument");
    return text !== "" && self.endsWith(text) ? self.slice(0, -text.length) : self;
  }),
  replace: builtin("old, new, count=, /", (meter, self, [old, replacement, limit]) =>
    replaceText(meter, self, textArgument(old, "replace() argument 1"), textArgument(replacement, "replace() argument 2"), limit),
  ),
  rfind: finder((text, part) => text.lastIndexOf(part), { isRequired: false }),
  rindex: finder((text, part) => text.lastIndexOf(part), { isRequired: true }),
  rjust: aligner((missing) => missing),
  rpartition: partitioner(
    (text, part) => text.lastIndexOf(part),
    (text) => ["", "", text],
  ),
  rsplit: splitter(rsplit),
  rstrip: stripper("right"),
  split: splitter(splitText),
  splitlines: builtin("keepends=", (meter, self, [keepends]) => {
    meter.chargeText(self.length);
    const lines = splitLines(self, keepends !== undefined && isTruthy(keepends));
    meter.charge(lines.length);
    return lines;
  }),
  startswith: affix((text, prefix) => text.startsWith(prefix)),
  strip: stripper("both"),
  swapcase: mapper(swapCase, CASING_COST),
  title: mapper(title, CASING_COST),
  upper: mapper((text) => text.toUpperCase()),
  zfill: builtin("width, /", (meter, self, [width]) => {
    meter.chargeText(self.length);
    const missing = integerArgument(width as TemplateValue, "width") - lengthOf(self);
    if (missing <= 0) return self;
    meter.checkLength(self.length + missing);
    const signLength = /^[+-]/.test(self) ? 1 : 0;
    return meter.chargeResult(self.slice(0, signLength) + "0".repeat(missing) + self.slice(signLength));
  }),
};

/** Whether `str.isalnum` holds for a text with numeric characters; numerals that are not digits are unsupported. */
function isNumericWord(text: string): boolean {
  return (
    text !== "" &&
    pointsOf(text).every((point) => {
      if (/\p{L}/u.test(point) || DIGITS.test(point)) return true;
      return /\p{N}/u.test(point) ? unsupported("`isalnum` of numerals that are not digits") : false;
    })
  );
}

/** Returns `text.strip(chars)`, `lstrip` or `rstrip`. Without `chars`, or with `None`, it strips white space. */
export function stripText(meter: Meter, text: string, sides: Sides, chars: TemplateValue | undefined): string {
  const characters = chars === undefined || chars === null ? undefined : textArgument(chars, "strip arg");
  if (characters !== undefined) {
    meter.chargeText(text.length + characters.length * 4);
    meter.chargeSearch(isBmpOnly(text) ? 0 : text.length * 8, characters.length);
  }
  const stripped = strip(text, sides, characters);
  // The search reads the stripped characters, and one more on each side.
  meter.chargeSearch(text.length - stripped.length, characters?.length ?? 1);
  return stripped;
}

/** Returns `text.replace(old, replacement, limit)`. */
export function replaceText(meter: Meter, text: string, old: string, replacement: string, limit: TemplateValue | undefined): string {
  const maxCount = limit === undefined ? -1 : integerArgument(limit, "count");
  meter.chargeSearch(text.length, old.length);
  const occurrences = countOccurrences(text, old);
  const replaced = maxCount < 0 ? occurrences : Math.min(occurrences, maxCount);
  meter.charge(replaced);
  meter.checkLength(text.length + replaced * (replacement.length - old.length));
  return meter.chargeResult(replace(text, old, replacement, maxCount));
}

/** Methods of Python's `str` that this engine does not support. */
const UNSUPPORTED_METHODS: ReadonlySet<string> = new Set(
  "casefold encode format_map isidentifier isnumeric maketrans translate".split(" "),
);

/** Whether Python's `str` has a method with this name, supported here or not. */
export function isStringMethod(name: string): boolean {
  return Object.hasOwn(METHODS, name) || name === "format" || UNSUPPORTED_METHODS.has(name);
}

/**
 * Calls a method of `str`.
 *
 * @throws TemplateUnsupported naming a method of Python that is not supported.
 */
export function callStringMethod(
  meter: Meter,
  self: string,
  name: string,
  args: readonly TemplateValue[],
  keywords: Keywords,
): TemplateValue {
  meter.charge(1);
  if (name === "format") return formatBraces(meter, self, args, keywords);
  const method = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined;
  if (method === undefined) {
    if (UNSUPPORTED_METHODS.has(name)) return unsupported(`the method \`str.${name}\``);
    throw new TemplateFailure(`'str object' has no attribute '${name}'`);
  }
  return callBuiltin(meter, name, method, self, args, keywords);
}

/** JSON syntax as grammar expressions: white space, strings, numbers, and values without a schema. */
import { complement, intersection } from "../code-points.ts";
import {
  choice,
  choiceOf,
  optional,
  repeat,
  sequence,
  sequenceOf,
  set,
  text,
  type CodePointRange,
  type Expression,
  type GrammarBuilder,
} from "../expression.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/** A decimal digit. */
export const DIGIT: Expression = set([0x30, 0x39]);
const NON_ZERO = set([0x31, 0x39]);
const HEX = set([0x30, 0x39], [0x41, 0x46], [0x61, 0x66]);

/** Maximum indentation, in characters. */
const MAX_INDENTATION = 40;

/**
 * Common white space between the parts of a JSON text: none, a space, or a line break with indentation. With all the white space that JSON
 * allows, a small model that begins to repeat spaces may never stop.
 */
export const USUAL_WHITESPACE: Expression = optional(
  choice(text(" "), sequence(optional(text("\r")), text("\n"), repeat(set([0x09, 0x09], [0x20, 0x20]), 0, MAX_INDENTATION))),
);

/** Characters that need no escape in a JSON string: all except control characters, `"` and `\`. */
const UNESCAPED: readonly CodePointRange[] = complement([
  [0, 0x1f],
  [0x22, 0x22],
  [0x5c, 0x5c],
]);
/** Characters that must be escaped. */
const ESCAPED = complement(UNESCAPED);

/**
 * Any character of a JSON string, in any spelling: itself, `\n`, `\u00e9`, or a surrogate pair of two escapes. Lone surrogates are
 * excluded.
 */
export const ANY_CHARACTER: Expression = choice(
  set(...UNESCAPED),
  sequence(text("\\"), set(...Array.from(Buffer.from('"\\/bfnrt'), (byte): CodePointRange => [byte, byte]))),
  // `\uXXXX` outside of the surrogates: the first digit is not D, or the second one is at most 7.
  sequence(
    text("\\u"),
    choice(
      sequence(set([0x30, 0x39], [0x41, 0x43], [0x45, 0x46], [0x61, 0x63], [0x65, 0x66]), repeat(HEX, 3, 3)),
      sequence(set([0x44, 0x44], [0x64, 0x64]), set([0x30, 0x37]), repeat(HEX, 2, 2)),
    ),
  ),
  // A surrogate pair: D8–DB, then DC–DF.
  sequence(
    text("\\u"),
    set([0x44, 0x44], [0x64, 0x64]),
    set([0x38, 0x39], [0x41, 0x42], [0x61, 0x62]),
    repeat(HEX, 2, 2),
    text("\\u"),
    set([0x44, 0x44], [0x64, 0x64]),
    set([0x43, 0x46], [0x63, 0x66]),
    repeat(HEX, 2, 2),
  ),
);

/**
 * Returns the expression of one character of `ranges` in a JSON string, in its spelling by `JSON.stringify`. Other spellings do not match.
 */
export function spelled(ranges: readonly CodePointRange[]): Expression {
  const plain = intersection(ranges, UNESCAPED);
  const escaped = intersection(ranges, ESCAPED).flatMap(([first, last]) =>
    Array.from({ length: last - first + 1 }, (_, at) => text(JSON.stringify(String.fromCodePoint(first + at)).slice(1, -1))),
  );
  return choiceOf([...(plain.length > 0 ? [{ kind: "set" as const, ranges: plain }] : []), ...escaped]);
}

/** Maximum number of escaped characters for which {@link speller} adds no rule. */
const MAX_INLINE_ESCAPES = 2;

/** Returns a function like {@link spelled} for one grammar. Long lists of escapes become rules, which all uses share. */
export function speller(builder: GrammarBuilder): (ranges: readonly CodePointRange[]) => Expression {
  const rules = new Map<string, Expression>();
  return (ranges) => {
    const escaped = intersection(ranges, ESCAPED);
    if (escaped.reduce((sum, [first, last]) => sum + last - first + 1, 0) <= MAX_INLINE_ESCAPES) return spelled(ranges);
    const rule = getOrInsert(rules, escaped.join(";"), () => builder.rule(() => spelled(escaped)));
    const plain = intersection(ranges, UNESCAPED);
    return plain.length === 0 ? rule : choice({ kind: "set", ranges: plain }, rule);
  };
}

/** Any character that must be escaped, in the spelling of {@link spelled}. */
export const ESCAPED_CHARACTER: Expression = spelled(ESCAPED);

/**
 * Returns the expression of one character other than `points`, in the spelling of {@link spelled}.
 *
 * @param escaped - Rule of {@link ESCAPED_CHARACTER}, used unless one of the points must be escaped.
 */
export function spelledOtherThan(points: readonly number[], escaped: Expression): Expression {
  const excluded = points.map((point): CodePointRange => [point, point]);
  if (intersection(excluded, ESCAPED).length > 0) return spelled(complement(excluded));
  return choice({ kind: "set", ranges: intersection(complement(excluded), UNESCAPED) }, escaped);
}

/** Maximum number of integer digits, so that a number with an exponent of two digits stays finite. */
const MAX_DIGITS = 200;
const SIGN = optional(set([0x2b, 0x2b], [0x2d, 0x2d]));
/** `E` or `e`, before the digits of an exponent. */
const EXPONENT = set([0x45, 0x45], [0x65, 0x65]);
const FRACTION = optional(sequence(text("."), repeat(DIGIT, 1)));

/** A non-negative integer. */
export const NATURAL: Expression = choice(text("0"), sequence(NON_ZERO, repeat(DIGIT, 0, MAX_DIGITS - 1)));

/** An integer without fraction or exponent. */
export const INTEGER: Expression = choice(text("0"), sequence(optional(text("-")), NON_ZERO, repeat(DIGIT, 0, MAX_DIGITS - 1)));

/**
 * A number with an absolute value below 10³⁰⁸, so that it is finite as a double. With large exponents, only one digit precedes the
 * fraction.
 */
export const NUMBER: Expression = sequence(
  optional(text("-")),
  choice(
    sequence(NATURAL, FRACTION, optional(sequence(EXPONENT, SIGN, repeat(DIGIT, 1, 2)))),
    sequence(DIGIT, FRACTION, EXPONENT, text("-"), repeat(DIGIT, 3, 3)),
    // Exponents from 100 to 307.
    sequence(
      DIGIT,
      FRACTION,
      EXPONENT,
      optional(text("+")),
      choice(sequence(set([0x31, 0x32]), DIGIT, DIGIT), sequence(text("30"), set([0x30, 0x37]))),
    ),
  ),
);

/** Rules of JSON without a schema, shared within a grammar. */
export interface JsonParts {
  /** White space between the parts of a JSON text. */
  readonly whitespace: Expression;
  readonly string: Expression;
  /** A string after its opening quote or any of its characters: more characters and the closing quote. */
  readonly restOfString: Expression;
  readonly object: Expression;
  readonly array: Expression;
  readonly value: Expression;
}

/** Adds the rules of JSON without a schema to a grammar. */
export function jsonParts(builder: GrammarBuilder, whitespace: Expression): JsonParts {
  const character = builder.rule(() => ANY_CHARACTER);
  const restOfString = builder.rule(() => sequence(repeat(character), text('"')));
  const string = sequence(text('"'), restOfString);
  // Objects and arrays contain values, and values are objects and arrays: both are set while the rule of values is made.
  let object: Expression = string;
  let array: Expression = string;
  const value = builder.rule((self) => {
    object = builder.rule(() => listOf(whitespace, "{", sequence(string, whitespace, text(":"), whitespace, self, whitespace), "}"));
    array = builder.rule(() => listOf(whitespace, "[", sequence(self, whitespace), "]"));
    return choice(object, array, string, NUMBER, text("true"), text("false"), text("null"));
  });
  return { whitespace, string, restOfString, object, array, value };
}

/** Returns the expression of items between commas and brackets; `item` includes the white space after it. */
function listOf(whitespace: Expression, open: string, item: Expression, close: string): Expression {
  return sequence(text(open), whitespace, optional(sequence(item, repeat(sequence(text(","), whitespace, item)))), text(close));
}

/** Returns the expression of the JSON of exactly one value, with the keys of its objects in their own order. */
export function literal(value: unknown, whitespace: Expression): Expression {
  if (typeof value !== "object" || value === null) return text(JSON.stringify(value));
  const inBrackets = (open: string, items: readonly Expression[], close: string): Expression => {
    const parts = items.flatMap((item, at) => (at === 0 ? [item, whitespace] : [text(","), whitespace, item, whitespace]));
    return sequenceOf([text(open), whitespace, ...parts, text(close)]);
  };
  if (Array.isArray(value)) {
    const items = value.map((item) => literal(item, whitespace));
    return inBrackets("[", items, "]");
  }
  const members = Object.entries(value).map(([key, member]) =>
    sequence(text(JSON.stringify(key)), whitespace, text(":"), whitespace, literal(member, whitespace)),
  );
  return inBrackets("{", members, "}");
}

/** Numbers that a schema describes. */
import type { Expression } from "../../../../engine/grammar/expression.ts";
import { INTEGER, NUMBER } from "../json-text.ts";
import { invalid, refuse, type SchemaObject } from "./keywords.ts";
import { integersBetween, nextUp, numbersBetween } from "./number-range.ts";

function bound(schema: SchemaObject, keyword: string, path: string): number | null {
  const value = schema[keyword];
  if (value === undefined) return null;
  if (typeof value !== "number" || !Number.isFinite(value)) throw invalid(keyword, path, "a number", value);
  return value;
}

/** The bounds, exclusive ones as the next number that is allowed: a text between two doubles counts as one of them. */
function boundsOf(schema: SchemaObject, path: string): { readonly low: number | null; readonly high: number | null } {
  const stricter = (a: number | null, b: number | null, of: (a: number, b: number) => number) =>
    a === null ? b : b === null ? a : of(a, b);
  const [above, below] = [bound(schema, "exclusiveMinimum", path), bound(schema, "exclusiveMaximum", path)];
  return {
    low: stricter(bound(schema, "minimum", path), above === null ? null : nextUp(above), Math.max),
    high: stricter(bound(schema, "maximum", path), below === null ? null : -nextUp(-below), Math.min),
  };
}

/** A number, or a whole one, which is written without fraction. With bounds it is written without exponent. */
export function numberOf(schema: SchemaObject, isInteger: boolean, path: string): Expression {
  const { multipleOf } = schema;
  if (multipleOf !== undefined && !(multipleOf === 1 && isInteger))
    throw refuse("multipleOf", path, "only 1, of an integer, is carried out");
  const { low, high } = boundsOf(schema, path);
  if (!isInteger) return low === null && high === null ? NUMBER : numbersBetween(low, high);
  if (low === null && high === null) return INTEGER;
  return integersBetween(low === null ? null : BigInt(Math.ceil(low)), high === null ? null : BigInt(Math.floor(high)));
}

/** Order and sum of sequences of values. */
import { typeError, unsupported } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { binary, compareValues } from "./operators.ts";
import { Float, float, type TemplateValue } from "./values.ts";

/** Sorts values stably by keys; raises where Python cannot order them. */
export function sortBy(
  meter: Meter,
  items: readonly TemplateValue[],
  key: (item: TemplateValue) => TemplateValue,
  isReverse: boolean,
): TemplateValue[] {
  meter.charge(items.length * 4);
  const keyed = items.map((item) => ({ item, key: key(item) }));
  const order = (a: TemplateValue, b: TemplateValue): number => {
    meter.charge(1);
    const result = compareValues(meter, "<", a, b);
    return Number.isNaN(result) ? unsupported("sorting values with NaN") : result;
  };
  // A reversed sort of Python keeps equal elements in their order.
  keyed.sort(isReverse ? (a, b) => order(b.key, a.key) : (a, b) => order(a.key, b.key));
  return keyed.map(({ item }) => item);
}

/** Returns `sum(items, start)`. */
export function sum(meter: Meter, items: Iterable<TemplateValue>, start: TemplateValue): TemplateValue {
  if (typeof start === "string") return typeError("sum() can't sum strings [use ''.join(seq) instead]");
  let total: TemplateValue = start;
  for (const item of items) total = binary(meter, "+", total, item);
  return total instanceof Float ? float(total.value) : total;
}

import type { Meter } from "./meter.ts";
import type { Builtin } from "./signature.ts";
import type { Keywords, Value } from "./values.ts";

/** Applies a filter by its name. */
export type ApplyFilter = (meter: Meter, name: string, value: Value, args: readonly Value[], keywords: Keywords) => Value;

/** Filter: a function with named parameters, or one that takes its arguments as they come. */
export type Filter =
  | Builtin<Value>
  | ((meter: Meter, value: Value, args: readonly Value[], keywords: Keywords, apply: ApplyFilter) => Value);

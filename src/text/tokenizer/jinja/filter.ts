import type { Meter } from "./meter.ts";
import type { Builtin } from "./signature.ts";
import type { Keywords, TemplateValue } from "./values.ts";

/** Applies a filter by its name. */
export type ApplyFilter = (
  meter: Meter,
  name: string,
  value: TemplateValue,
  args: readonly TemplateValue[],
  keywords: Keywords,
) => TemplateValue;

/** Filter: a function with named parameters, or one that takes its arguments as they come. */
export type Filter =
  | Builtin<TemplateValue>
  | ((meter: Meter, value: TemplateValue, args: readonly TemplateValue[], keywords: Keywords, apply: ApplyFilter) => TemplateValue);

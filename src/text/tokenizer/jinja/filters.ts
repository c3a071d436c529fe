/** Filters of templates: `value | name(…)`. */

import { TemplateFailure, unsupported } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { SEQUENCE_FILTERS } from "./sequence-filters.ts";
import { callBuiltin, type Filter } from "./signature.ts";
import { TEXT_FILTERS } from "./text-filters.ts";
import type { Keywords, TemplateValue } from "./values.ts";

const FILTERS: Readonly<Record<string, Filter>> = { ...TEXT_FILTERS, ...SEQUENCE_FILTERS };

/** Filters of Python's Jinja that this engine does not support. */
const UNSUPPORTED_FILTERS: ReadonlySet<string> = new Set([
  ...["attr", "e", "escape", "filesizeformat", "forceescape", "pprint"],
  ...["random", "striptags", "urlencode", "urlize", "wordwrap", "xmlattr"],
]);

/** Whether Python's Jinja has a filter with this name, supported here or not. */
export function isFilter(name: string): boolean {
  return Object.hasOwn(FILTERS, name) || UNSUPPORTED_FILTERS.has(name);
}

/**
 * Applies the filter `name`.
 *
 * @throws TemplateUnsupported naming a filter of Python's Jinja that is not supported.
 */
export function applyFilter(
  meter: Meter,
  name: string,
  value: TemplateValue,
  args: readonly TemplateValue[],
  keywords: Keywords,
): TemplateValue {
  const filter = Object.hasOwn(FILTERS, name) ? FILTERS[name] : undefined;
  if (filter === undefined) {
    if (UNSUPPORTED_FILTERS.has(name)) return unsupported(`the filter \`${name}\``);
    throw new TemplateFailure(`No filter named '${name}'.`);
  }
  meter.charge(1);
  if (typeof filter === "function") return filter(meter, value, args, keywords, applyFilter);
  return callBuiltin(meter, name, filter, value, args, keywords);
}

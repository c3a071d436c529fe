/** Paginated lists of the service. */
import type { z } from "zod";
import { callJson, type Api, type CallOptions } from "./api.ts";
import { ProtocolError } from "./errors.ts";
import { parseResponse } from "./options.ts";

/** Number of items that a list returns. */
export interface ListOptions extends CallOptions {
  /** Max number of items to return. @default all */
  readonly max?: number | undefined;
}

/** Max items of a page. */
const PAGE_SIZE = 100;

/** Page of a list, in the wire's form. */
interface Page<Item> {
  readonly data: readonly Item[];
  /** Id of the page's last item, the `after` of the next request; null if the service does not report it. */
  readonly last_id: string | null;
  readonly has_more: boolean;
}

/**
 * Fetches the pages of a list until the list ends or `max` items are fetched.
 *
 * @param schema - Schema of a page.
 * @param query - Filters and order, sent with every request; undefined members are omitted.
 * @param items - Name of the items in errors, in the plural.
 * @throws ProtocolError `E_PROTOCOL` for an invalid page.
 */
export async function allPages<Item extends { readonly id: string }>(
  api: Api,
  path: string,
  schema: z.ZodType<Page<Item>>,
  query: Readonly<Record<string, string | number | undefined>>,
  items: string,
  { max = Number.POSITIVE_INFINITY, ...options }: ListOptions,
): Promise<Item[]> {
  const all: Item[] = [];
  let after: string | undefined;
  while (all.length < max) {
    const pageQuery = { ...query, after, limit: Math.min(PAGE_SIZE, max - all.length) };
    const page = parseResponse(schema, await callJson(api, "GET", path, { ...options, query: pageQuery }), `list of ${items}`);
    all.push(...page.data);
    if (!page.has_more) break;
    const last = page.last_id ?? page.data.at(-1)?.id;
    if (last === undefined || last === after)
      throw new ProtocolError(`The service says there are more ${items} but its page has no new last id`);
    after = last;
  }
  return all;
}

/** Fetching of the service's paginated lists, for the `list` method of each resource. */
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

/** List of a route. */
interface List<Item> {
  /** Schema of a page. */
  readonly schema: z.ZodType<Page<Item>>;
  /** Filters and order, sent with every request; undefined members are omitted. */
  readonly query: Readonly<Record<string, string | number | undefined>>;
  /** Name of the items in errors, in the plural. */
  readonly itemsName: string;
}

/**
 * Fetches the pages of a list until the list ends or `max` items are fetched.
 *
 * @throws ProtocolError `E_PROTOCOL` for an invalid page.
 */
export async function allPages<Item extends { readonly id: string }>(
  api: Api,
  path: string,
  { schema, query, itemsName }: List<Item>,
  { max = Number.POSITIVE_INFINITY, ...options }: ListOptions,
): Promise<Item[]> {
  const items: Item[] = [];
  /** Id of the last item of the previous page. */
  let after: string | undefined;
  while (items.length < max) {
    const pageQuery = { ...query, after, limit: Math.min(PAGE_SIZE, max - items.length) };
    const page = parseResponse(schema, await callJson(api, "GET", path, { ...options, query: pageQuery }), `list of ${itemsName}`);
    items.push(...page.data);
    if (!page.has_more) break;
    const lastId = page.last_id ?? page.data.at(-1)?.id;
    if (lastId === undefined || lastId === after)
      throw new ProtocolError(`The service says there are more ${itemsName} but its page has no new last id`);
    after = lastId;
  }
  return items;
}

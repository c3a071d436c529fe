/** Reading of the paginated lists of an MCP server. */
import { ConfigError } from "../../../base/errors.ts";

/** Page of a list of an MCP server; the other members depend on the list. */
interface Page {
  /** Cursor of the next page; undefined on the last one. */
  readonly nextCursor?: string | undefined;
}

/**
 * Reads all pages of a list of an MCP server.
 *
 * @param noun - Plural noun for the listed objects in the error message, such as `tools`.
 * @param readPage - Requests one page: the first one without a cursor, else the page at `cursor`.
 * @throws ConfigError `E_CONFIG` if the server returns a cursor twice, so that the list would never end.
 */
export async function allMcpPages<P extends Page>(noun: string, readPage: (params: { cursor?: string }) => Promise<P>): Promise<P[]> {
  const pages: P[] = [];
  const cursors = new Set<string>();
  let cursor: string | undefined;
  do {
    const page = await readPage(cursor === undefined ? {} : { cursor });
    pages.push(page);
    cursor = page.nextCursor;
    if (cursor !== undefined && cursors.has(cursor))
      throw new ConfigError(`The MCP server's list of ${noun} has no end: cursor \`${cursor}\` again`);
    if (cursor !== undefined) cursors.add(cursor);
  } while (cursor !== undefined);
  return pages;
}

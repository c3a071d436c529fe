import { ConfigError } from "../../../base/errors.ts";

/** Page of a list of an MCP server. */
interface Page {
  /** Cursor of the next page; undefined on the last one. */
  readonly nextCursor?: string | undefined;
}

/**
 * Reads all pages of a list of an MCP server.
 *
 * @param noun - Listed objects, for the message of an error.
 * @param readPage - Requests one page.
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

/** Tools and resources from which scenarios are generated: given as they are, or listed by an MCP server. */
import { ArgumentError } from "../../base/errors.ts";
import type { McpClient } from "../rollout/agent/index.ts";
import { allMcpPages } from "../rollout/agent/mcp-list.ts";
import type { Tool } from "../../base/schema/index.ts";

/** Resource that an agent can read, as an MCP server lists it. */
export interface ScenarioResource {
  /** Address of the resource. */
  readonly uri: string;
  /** Name of the resource. @default none */
  readonly name?: string | undefined;
  /** Description for the model. @default none */
  readonly description?: string | undefined;
  /** MIME type of the content. @default none */
  readonly mimeType?: string | undefined;
}

/**
 * Required part of a connected `Client` of `@modelcontextprotocol/sdk`; any object of this shape works. Resources are listed if the client
 * has `listResources`, unless its `getServerCapabilities` says that the server offers none.
 *
 * @example
 * ```ts
 * const server = {
 *   listTools: async () => ({ tools: [{ name: "now", inputSchema: { type: "object" as const } }] }),
 *   getServerCapabilities: () => ({ resources: {} }),
 *   listResources: async () => ({ resources: [{ uri: "zones://all", name: "Time zones" }] }),
 * } satisfies ScenarioClient;
 * const { tools } = await server.listTools();
 * const resources = "resources" in server.getServerCapabilities() ? await server.listResources() : null;
 * ```
 */
export interface ScenarioClient extends Pick<McpClient, "listTools"> {
  /**
   * Reads the capabilities that the server announced.
   *
   * @returns the capabilities; undefined before the connection.
   * @example
   * ```ts
   * const hasResources = (server: ScenarioClient) => server.getServerCapabilities?.()?.resources !== undefined;
   * ```
   */
  getServerCapabilities?():
    | {
        /** Present if the server offers resources. */
        resources?: object | undefined;
      }
    | undefined;
  /**
   * Lists one page of the server's resources.
   *
   * @param params - Position of the page; absent for the first one.
   * @param options - Signal that aborts the request.
   * @returns the resources, and the cursor of the next page.
   * @example
   * ```ts
   * const firstPage = async (server: ScenarioClient) => (await server.listResources?.())?.resources ?? [];
   * ```
   */
  listResources?(
    params?: { cursor?: string },
    options?: { signal?: AbortSignal },
  ): Promise<{
    /** Resources of the page. */
    resources: ScenarioResource[];
    /** Cursor of the next page; undefined on the last one. */
    nextCursor?: string | undefined;
  }>;
}

/** Description of a tool for the model that writes the tasks. */
export interface DescribedTool {
  readonly name: string;
  readonly description?: string | undefined;
  readonly parameters?: unknown;
}

/** Tools and resources of an agent. */
export interface Sources {
  readonly tools: readonly DescribedTool[];
  readonly resources: readonly ScenarioResource[];
}

/**
 * Returns the tools and resources that scenarios may use.
 *
 * @throws ArgumentError `E_ARGUMENT` unless exactly one of `client` and `tools` is given and there is at least one tool with its own name.
 */
export async function sourcesOf({
  client,
  tools,
  resources,
  signal,
}: {
  readonly client?: ScenarioClient | undefined;
  readonly tools?: readonly Tool[] | undefined;
  readonly resources?: readonly ScenarioResource[] | undefined;
  readonly signal?: AbortSignal | undefined;
}): Promise<Sources> {
  if ((client === undefined) === (tools === undefined)) {
    const got = client === undefined ? "neither" : "both";
    throw new ArgumentError(`Expected either \`client\` or \`tools\`, got ${got}`, { param: client === undefined ? "client" : "tools" });
  }
  const param = client === undefined ? "tools" : "client";
  const listed = client === undefined ? (tools ?? []).map((tool) => tool.function) : await toolsOf(client, signal);
  if (listed.length === 0) throw new ArgumentError(`Expected \`${param}\` to have at least one tool, got none`, { param });
  const names = listed.map(({ name }) => name);
  const repeatedName = names.find((name, index) => names.indexOf(name) !== index);
  if (repeatedName !== undefined)
    throw new ArgumentError(`Expected each tool to have its own name, got \`${repeatedName}\` twice`, { param });
  return {
    tools: listed.map(({ name, description, parameters }) => ({ name, description: description ?? undefined, parameters })),
    resources: resources ?? (client === undefined ? [] : await resourcesOf(client, signal)),
  };
}

/** Lists the tools of an MCP server. */
async function toolsOf(client: ScenarioClient, signal: AbortSignal | undefined): Promise<DescribedTool[]> {
  const pages = await allMcpPages("tools", (params) => client.listTools(params, signal === undefined ? {} : { signal }));
  return pages.flatMap(({ tools }) =>
    tools.map(({ name, description, inputSchema }) => {
      // The model does not need the version of JSON Schema.
      const { $schema: _, ...parameters } = inputSchema;
      return { name, description, parameters };
    }),
  );
}

/** Lists the resources of an MCP server; none if the client or the server does not support them. */
async function resourcesOf(client: ScenarioClient, signal: AbortSignal | undefined): Promise<ScenarioResource[]> {
  const isUnsupported = client.getServerCapabilities !== undefined && client.getServerCapabilities()?.resources === undefined;
  if (isUnsupported || client.listResources === undefined) return [];
  // Called as a method: a client of the SDK reads `this`.
  const listPage = (params: { cursor?: string }) =>
    client.listResources?.(params, signal === undefined ? {} : { signal }) ?? Promise.resolve({ resources: [] });
  const pages = await allMcpPages("resources", listPage);
  return pages.flatMap(({ resources }) => resources.map(({ uri, name, description, mimeType }) => ({ uri, name, description, mimeType })));
}

/** Tools of an MCP server as tools of an agent. */
import { z } from "zod";
import { ConfigError } from "../../../base/errors.ts";
import type { JsonObject } from "../../../base/schema/index.ts";
import { allMcpPages } from "./mcp-list.ts";
import { agentTool, failure, type AgentTool, type ToolContext, type ToolResult } from "./tool.ts";

/**
 * Required part of a connected `Client` of `@modelcontextprotocol/sdk`; any object of this shape works.
 *
 * @example
 * ```ts
 * const client: McpClient = {
 *   listTools: async () => ({ tools: [{ name: "now", inputSchema: { type: "object" } }] }),
 *   callTool: async () => ({ content: [{ type: "text", text: new Date().toISOString() }] }),
 * };
 * const { tools } = await client.listTools();
 * await client.callTool({ name: tools[0]!.name });
 * ```
 */
export interface McpClient {
  /**
   * Lists one page of the server's tools.
   *
   * @param params - Position of the page; absent for the first one.
   * @param options - Signal that aborts the request.
   * @returns the tools with JSON Schemas of their inputs, and the cursor of the next page.
   */
  listTools(
    params?: { cursor?: string },
    options?: { signal?: AbortSignal },
  ): Promise<{
    /** Tools of the page. */
    tools: {
      /** Name of the tool on the server. */
      name: string;
      /** Description for the model. */
      description?: string | undefined;
      /** JSON Schema of the arguments. */
      inputSchema: {
        /** Type of the arguments: always an object. */
        type: "object";
        [key: string]: unknown;
      };
    }[];
    /** Cursor of the next page; undefined on the last one. */
    nextCursor?: string | undefined;
  }>;
  /**
   * Calls one tool of the server.
   *
   * @param params - Name on the server, and arguments.
   * @param resultSchema - {@link mcpTools} passes undefined. The SDK's client takes a schema of the result as its second argument.
   * @param options - Signal that aborts the call.
   * @returns an MCP tool result: `content`, `structuredContent`, `isError`.
   */
  callTool(
    params: { name: string; arguments?: Record<string, unknown> },
    resultSchema?: undefined,
    options?: { signal?: AbortSignal },
  ): Promise<unknown>;
}

/** Options of {@link mcpTools}. */
export interface McpToolsOptions {
  /**
   * Maps a tool's name on the server to the name shown to the model, e.g. to distinguish the tools of two servers.
   *
   * @default the server's name
   */
  readonly rename?: ((name: string) => string) | undefined;
  /** Aborts the listing. */
  readonly signal?: AbortSignal | undefined;
}

/** Schema of an MCP tool result: the fields that a text model can read, or that describe other content to it. */
const mcpResult = z.looseObject({
  content: z
    .array(
      z.looseObject({
        type: z.string(),
        /** Text of a `text` block. */
        text: z.string().optional(),
        /** MIME type of an `image`, `audio` or `resource_link` block. */
        mimeType: z.string().optional(),
        /** URI of a `resource_link` block. */
        uri: z.string().optional(),
        /** Contents of a `resource` block, an embedded resource; a binary resource has no `text`. */
        resource: z.looseObject({ uri: z.string(), text: z.string().optional(), mimeType: z.string().optional() }).optional(),
      }),
    )
    .default([]),
  structuredContent: z.unknown().optional(),
  isError: z.boolean().optional(),
});

/**
 * Returns the tools of an MCP server, all pages of its list, as tools that an agent can run. The caller connects and closes the client.
 *
 * Text is passed to the model unchanged, and an embedded text resource as its text. Images, audio, links and binary resources are replaced
 * by their type, URI and MIME type.
 *
 * @param client - Connected MCP client.
 * @param options - Renaming and a signal.
 * @returns The tools in list order.
 * @throws ConfigError `E_CONFIG` if the server's list never ends, or if two tools have the same name after `rename`.
 * @throws the signal's reason, or any error of the client.
 * @example
 * ```ts
 * import { trajectory } from "whetstone";
 * import { runAgent } from "whetstone/agent";
 *
 * const tools = await mcpTools(client, { rename: (name) => `files_${name}` });
 * const t = trajectory({ messages: [{ role: "user", content: "Which files are there?" }], tools });
 * await runAgent(t, policy);
 * ```
 */
export async function mcpTools(
  client: McpClient,
  { rename = (name) => name, signal: listSignal }: McpToolsOptions = {},
): Promise<AgentTool[]> {
  const tools = new Map<string, AgentTool>();
  const listOptions = listSignal === undefined ? {} : { signal: listSignal };
  const pages = await allMcpPages("tools", (params) => client.listTools(params, listOptions));
  for (const { name, description, inputSchema } of pages.flatMap((page) => page.tools)) {
    const shownName = rename(name);
    if (tools.has(shownName)) throw new ConfigError(`Two tools of the MCP server would be named \`${shownName}\``, { param: "rename" });
    // The model does not need the version of JSON Schema.
    const { $schema: _, ...parameters } = inputSchema;
    const call = async (input: Record<string, unknown>, { signal }: ToolContext) =>
      resultFromMcp(await client.callTool({ name, arguments: input }, undefined, { signal }));
    tools.set(shownName, agentTool({ name: shownName, description, parameters: parameters as JsonObject }, call));
  }
  return [...tools.values()];
}

/** Converts an MCP tool result. An invalid result becomes the result of a failed call. */
export function resultFromMcp(value: unknown): ToolResult {
  const parsed = mcpResult.safeParse(value);
  if (!parsed.success) return failure(`the server gave no MCP tool result: ${z.prettifyError(parsed.error)}`);
  const { content, structuredContent, isError = false } = parsed.data;
  // MCP recommends that a server sends structured content as text, too, but does not require it.
  const isStructuredOnly = content.length === 0 && structuredContent !== undefined;
  const text = isStructuredOnly ? JSON.stringify(structuredContent) : content.map(textOf).join("\n");
  return isError ? failure(text) : { text, isError: false };
}

/** Returns the text of a content block; of any other content a placeholder such as `[image image/png]`. */
function textOf({ type, text, mimeType, uri, resource }: z.infer<typeof mcpResult>["content"][number]): string {
  if (text !== undefined) return text;
  if (resource?.text !== undefined) return resource.text;
  const about = [resource?.uri ?? uri, resource?.mimeType ?? mimeType].filter((each) => each !== undefined);
  return `[${[type, ...about].join(" ")}]`;
}

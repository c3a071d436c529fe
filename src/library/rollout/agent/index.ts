/** Agents: policies that call tools, local ones or tools of MCP servers. */
export { mcpTools } from "./mcp.ts";
export type { McpClient, McpToolsOptions } from "./mcp.ts";
export { runAgent } from "./run-agent.ts";
export type { AgentRun, RunAgentOptions } from "./run-agent.ts";
export { defineTool } from "./tool.ts";
export type { AgentTool, ToolContext, ToolDefinition, ToolResult } from "./tool.ts";

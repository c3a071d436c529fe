/** Agents: policies that call tools, local ones or tools of MCP servers. */
export { mcpTools, type McpClient, type McpToolsOptions } from "./mcp.ts";
export { runAgent, type AgentRun, type RunAgentOptions } from "./run-agent.ts";
export { defineTool, type AgentTool, type ToolContext, type ToolDefinition, type ToolResult } from "./tool.ts";

/** Tools that a provider runs. The model of this service cannot call them. */

/** Types of hosted tools, without the version at the end. */
const HOSTED_TYPES = new Set([
  ...["web_search", "web_search_preview", "web_fetch", "file_search", "code_interpreter", "code_execution", "image_generation"],
  ...["computer", "computer_use", "computer_use_preview", "mcp", "tool_search", "tool_search_tool_regex", "tool_search_tool_bm25"],
]);

/** Version at the end of a type: `_20250305` or `_2025_08_26`. */
const VERSION = /_(?:\d{8}|\d{4}_\d{2}_\d{2})$/u;

/** Whether a tool of this type runs at the provider. Translations leave such tools out, and report a request that forces one of them. */
export function isHostedTool(type: unknown): boolean {
  return typeof type === "string" && HOSTED_TYPES.has(type.replace(VERSION, ""));
}

/** Remedy for a request that forces the use of a hosted tool. */
export const RUN_IN_CLIENT = "This service runs no tools; leave the choice to the model, or offer a function that the client runs";

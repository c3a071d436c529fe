/**
 * Tools of the Responses API as functions of a chat completion, and names of functions in both directions: a function `f` of the namespace `n`
 * is named `n.f` in a chat completion.
 */
import type { ResponsesRequest, ResponsesTool } from "../../base/schema/index.ts";
import { isHostedTool } from "../hosted-tools.ts";
import { BodyError, given, type Members, type OnUnsupported } from "../members.ts";

/** Name of a function, and its namespace if it is in one. */
export interface FunctionName {
  readonly name: string;
  readonly namespace?: string | undefined;
}

/** Returns the name of a function in a chat completion. */
export function chatName({ name, namespace }: FunctionName): string {
  return namespace === undefined ? name : `${namespace}.${name}`;
}

/** Returns the name of a tool. @throws BodyError `E_ARGUMENT` without one. */
function requiredName(tool: Members, path: string): string {
  if (typeof tool["name"] === "string") return tool["name"];
  throw new BodyError(`Expected \`${path}.name\` to be a string`, { param: `${path}.name` });
}

/** Returns a tool as a list with one function, empty for a tool that is left out. */
function chatTool(tool: Members, path: string, onUnsupported: OnUnsupported, namespace?: string): Members[] {
  const { type, description, parameters } = tool;
  if (type === "function")
    return [{ type, function: { name: chatName({ name: requiredName(tool, path), namespace }), ...given({ description, parameters }) } }];
  if (!isHostedTool(type)) onUnsupported(`${path}.type`, type, "Only functions that the client runs are supported");
  return [];
}

/** Returns the functions of a namespace. */
function membersOf({ tools }: ResponsesTool): readonly Members[] {
  return Array.isArray(tools) ? (tools as readonly Members[]) : [];
}

/**
 * Returns the tools of a chat completion. The functions of a namespace are named `namespace.function`. Hosted tools are left out. Custom
 * tools are unsupported; accepted ones are left out.
 *
 * @throws BodyError `E_ARGUMENT` for a tool without a name.
 */
export function chatTools(tools: readonly ResponsesTool[], onUnsupported: OnUnsupported): Members[] {
  return tools.flatMap((tool, index) => {
    const path = `tools.${index}`;
    if (tool.type !== "namespace") return chatTool(tool, path, onUnsupported);
    const namespace = requiredName(tool, path);
    return membersOf(tool).flatMap((member, position) => chatTool(member, `${path}.tools.${position}`, onUnsupported, namespace));
  });
}

/** Returns the name and namespace of the function that a chat completion calls by `name`; the inverse of {@link chatName}. */
export function calledName({ tools }: ResponsesRequest, name: string): FunctionName {
  for (const tool of tools ?? []) {
    if (tool.type !== "namespace" || tool.name === undefined) continue;
    const called = membersOf(tool).find((member) => chatName({ name: String(member["name"]), namespace: tool.name }) === name);
    if (called !== undefined) return { name: String(called["name"]), namespace: tool.name };
  }
  return { name };
}

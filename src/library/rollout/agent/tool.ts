/** Tools that an agent can run: a definition for the model, and a function that returns text for it. */
import { z } from "zod";
import { ConfigError } from "../../../base/errors.ts";
import { TOOL_ERROR_PREFIX } from "../../../base/trajectory/tool-errors.ts";
import type { JsonObject, Tool } from "../../../base/schema/index.ts";
import { messageOf } from "../../../base/util/values.ts";

/** Context of a tool call, in addition to its input. */
export interface ToolContext {
  /** Aborts with the rollout. Pass it to every operation that waits. */
  readonly signal: AbortSignal;
  /** Id of the call, as the model's service sent it; `""` if absent. */
  readonly callId: string;
}

/** Result of a tool call, as the model reads it. */
export interface ToolResult {
  /** Text of the tool message. */
  readonly text: string;
  /** Whether the call failed; `text` then describes the error. */
  readonly isError: boolean;
}

/**
 * Tool that can be run. Also a tool definition in wire form, so it can be passed to `trajectory({ tools })` directly; `call` is not
 * enumerable and absent from copies and JSON.
 */
export type AgentTool = Tool & {
  /** Runs the tool with the arguments that the model wrote, JSON text of an object. Errors become text for the model. */
  readonly call: (args: string, context: ToolContext) => Promise<ToolResult>;
};

/** Arguments of {@link defineTool}. */
export interface ToolDefinition<Schema extends z.ZodType> {
  /** Name of the tool: 1 to 64 letters, digits, `_` or `-`, as model APIs require. */
  readonly name: string;
  /** Description for the model: purpose of the tool and when to use it. @default none */
  readonly description?: string | undefined;
  /** Schema of the input, an object. Descriptions of its fields are sent to the model. */
  readonly schema: Schema;
  /** Runs the tool. A string is passed to the model unchanged, undefined as `""`, any other value as JSON. */
  readonly run: (input: z.output<Schema>, context: ToolContext) => unknown;
  /**
   * Whether an error thrown by `run` is the environment's fault rather than the model's, e.g. an unreachable database. Such an error fails
   * the rollout instead of becoming text for the model.
   *
   * @default no error is
   */
  readonly isFatal?: ((error: unknown) => boolean) | undefined;
}

/**
 * Creates a tool from a zod schema. The model sees the schema as JSON Schema; arguments are validated before `run`.
 *
 * Invalid arguments and errors thrown by `run` are returned to the model as text, so that it can try again. Errors that `isFatal` accepts fail
 * the rollout.
 *
 * @param definition - Name, description, schema and function.
 * @returns Tool for `trajectory({ tools })` and `runAgent`.
 * @throws ConfigError `E_CONFIG` for a name that model APIs reject, a schema that is not an object or has no JSON Schema, or a missing
 *   `run`.
 * @example
 * ```ts
 * import { z } from "zod";
 *
 * const add = defineTool({
 *   name: "add",
 *   description: "Adds two numbers.",
 *   schema: z.object({ a: z.number(), b: z.number() }),
 *   run: ({ a, b }) => a + b,
 * });
 * ```
 */
export function defineTool<Schema extends z.ZodType>({ name, description, schema, run, isFatal }: ToolDefinition<Schema>): AgentTool {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) {
    throw new ConfigError(`Expected a tool's name to be 1 to 64 letters, digits, "_" or "-", got \`${name}\``, { param: "name" });
  }
  if (typeof run !== "function") throw new ConfigError(`Expected tool \`${name}\` to have a function \`run\``, { param: "run" });
  const call = async (input: unknown, context: ToolContext): Promise<ToolResult> => {
    const parsed = await schema.safeParseAsync(input);
    if (!parsed.success) return failure(`the arguments do not fit: ${z.prettifyError(parsed.error)}`);
    const output = await run(parsed.data, context);
    return { text: typeof output === "string" ? output : (JSON.stringify(output) ?? ""), isError: false };
  };
  return agentTool({ name, description, parameters: parametersOf(name, schema) }, call, { isFatal });
}

/**
 * Creates a tool from its JSON Schema and a function. Parses the arguments as JSON, without validating them, and converts thrown errors to
 * text for the model. `defineTool` and `mcpTools` are built on it.
 *
 * @param options.isFatal - Whether an error of `run` fails the rollout instead, because a further call cannot succeed. @default no error
 *   does
 */
export function agentTool(
  definition: { readonly name: string; readonly description?: string | undefined; readonly parameters: JsonObject },
  run: (input: Record<string, unknown>, context: ToolContext) => Promise<ToolResult>,
  { isFatal = () => false }: { readonly isFatal?: ((error: unknown) => boolean) | undefined } = {},
): AgentTool {
  const { name, description, parameters } = definition;
  const wire: Tool = { type: "function", function: { name, ...(description === undefined ? {} : { description }), parameters } };
  const call = async (args: string, context: ToolContext): Promise<ToolResult> => {
    try {
      const input = parsedArguments(args);
      return typeof input === "string" ? failure(input) : await run(input, context);
    } catch (error) {
      // An abort of the rollout is rethrown; a tool's own timeout is reported to the model.
      context.signal.throwIfAborted();
      if (isFatal(error)) throw error;
      return failure(error instanceof Error ? error.message || error.name : String(error));
    }
  };
  // Not enumerable: a trajectory's tools are cloned and written as JSON, and functions support neither.
  return Object.freeze(Object.defineProperty(wire, "call", { value: call })) as AgentTool;
}

/** Returns the result of a failed call, in the same format for every failure. */
export function failure(text: string): ToolResult {
  return { text: `${TOOL_ERROR_PREFIX}${text}`, isError: true };
}

/** Parses the arguments of a call. @returns The input, or an error message. */
function parsedArguments(args: string): Record<string, unknown> | string {
  // Some services send nothing for a call without arguments.
  if (args.trim() === "") return {};
  let input: unknown;
  try {
    input = JSON.parse(args);
  } catch (error) {
    return `the arguments are not valid JSON: ${messageOf(error)}`;
  }
  if (typeof input === "object" && input !== null && !Array.isArray(input)) return input as Record<string, unknown>;
  return "the arguments must be a JSON object";
}

/** Returns the JSON Schema of a tool's input. @throws ConfigError `E_CONFIG` for a schema without one, or not of an object. */
function parametersOf(name: string, schema: z.ZodType): JsonObject {
  let parameters: JsonObject;
  try {
    // The model writes the input, before defaults and transforms.
    const jsonSchema = z.toJSONSchema(schema, { io: "input", override: (context) => dropSafeBounds(context.jsonSchema) });
    const { $schema: _, ...withoutVersion } = jsonSchema;
    parameters = withoutVersion as JsonObject;
  } catch (error) {
    const message = `The schema of tool \`${name}\` has no JSON Schema: ${messageOf(error)}`;
    throw new ConfigError(message, { cause: error, param: "schema" });
  }
  if (parameters["type"] === "object") return parameters;
  throw new ConfigError(`Expected the schema of tool \`${name}\` to be an object: \`z.object({ … })\``, { param: "schema" });
}

/**
 * Removes the bounds ±(2^53 − 1) that zod adds to every integer: they say nothing about the tool, and cost some 40 tokens of each prompt.
 */
function dropSafeBounds(schema: z.core.JSONSchema.BaseSchema): void {
  if (schema.minimum === Number.MIN_SAFE_INTEGER) delete schema.minimum;
  if (schema.maximum === Number.MAX_SAFE_INTEGER) delete schema.maximum;
}

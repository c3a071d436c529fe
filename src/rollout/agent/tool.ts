import { z } from "zod";
import { ConfigError } from "../../errors.ts";
import type { JsonObject, Tool } from "../../schema/index.ts";

/** What a tool gets beside its input. */
export interface ToolContext {
  /** Ends with the rollout. Pass it to everything that waits. */
  readonly signal: AbortSignal;
  /** Id of the call, as the model's service gave it; `""` if it gave none. */
  readonly callId: string;
}

/** What a tool gave back, as the model reads it. */
export interface ToolResult {
  readonly text: string;
  /** Whether the call failed; then the text says how. */
  readonly isError: boolean;
}

/**
 * A tool that can be run. It is also a tool definition of the wire, so it goes into `trajectory({ tools })` as it is; `call` is hidden
 * from everything that copies or prints it.
 */
export type AgentTool = Tool & {
  /** Runs it with the arguments that the model wrote, JSON text of an object. What it throws becomes an error the model reads. */
  readonly call: (args: string, context: ToolContext) => Promise<ToolResult>;
};

/** What {@link defineTool} takes. */
export interface ToolDefinition<Schema extends z.ZodType> {
  /** 1 to 64 letters, digits, `_` or `-`: what model APIs allow. */
  readonly name: string;
  /** What it does and when to use it, for the model. @default none */
  readonly description?: string | undefined;
  /** Its input, an object. Descriptions of its fields reach the model. */
  readonly schema: Schema;
  /** Does it. A string is given to the model as it is, nothing as `""`, anything else as JSON. */
  readonly run: (input: z.output<Schema>, context: ToolContext) => unknown;
}

/**
 * A tool from a zod schema. The model sees the schema as JSON Schema; what it writes is checked against it before `run`.
 *
 * Arguments that do not fit, and errors that `run` throws, are returned to the model as text: it may try again.
 *
 * @throws ConfigError `E_CONFIG` for a name that model APIs refuse, or a schema that is no object or has no JSON Schema.
 * @example
 * ```ts
 * const add = defineTool({
 *   name: "add",
 *   description: "Adds two numbers.",
 *   schema: z.object({ a: z.number(), b: z.number() }),
 *   run: ({ a, b }) => a + b,
 * });
 * ```
 */
export function defineTool<Schema extends z.ZodType>({ name, description, schema, run }: ToolDefinition<Schema>): AgentTool {
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name)) {
    throw new ConfigError(`Expected a tool's name to be 1 to 64 letters, digits, "_" or "-", got \`${name}\``, { param: "name" });
  }
  if (typeof run !== "function") throw new ConfigError(`Expected tool \`${name}\` to have a function \`run\``, { param: "run" });
  return agentTool({ name, description, parameters: parametersOf(name, schema) }, async (input, context) => {
    const parsed = await schema.safeParseAsync(input);
    if (!parsed.success) return failure(`the arguments do not fit: ${z.prettifyError(parsed.error)}`);
    const output = await run(parsed.data, context);
    return { text: typeof output === "string" ? output : (JSON.stringify(output) ?? ""), isError: false };
  });
}

/** A tool of the wire with a function behind it; parses the arguments, and turns what is thrown into text. */
export function agentTool(
  definition: { readonly name: string; readonly description?: string | undefined; readonly parameters: JsonObject },
  run: (input: Record<string, unknown>, context: ToolContext) => Promise<ToolResult>,
): AgentTool {
  const { name, description, parameters } = definition;
  const wire: Tool = { type: "function", function: { name, ...(description === undefined ? {} : { description }), parameters } };
  const call = async (args: string, context: ToolContext): Promise<ToolResult> => {
    try {
      const input = parsedArguments(args);
      return typeof input === "string" ? failure(input) : await run(input, context);
    } catch (error) {
      // The rollout's own end is not the model's business; a tool's own timeout is.
      context.signal.throwIfAborted();
      return failure(error instanceof Error ? error.message || error.name : String(error));
    }
  };
  // Not enumerable: a trajectory's tools are cloned and written as JSON, and a function can be neither.
  return Object.freeze(Object.defineProperty(wire, "call", { value: call })) as AgentTool;
}

/** A failed call, as every failure reads. */
export function failure(text: string): ToolResult {
  return { text: `Error: ${text}`, isError: true };
}

/** The input, or what is wrong with the text. */
function parsedArguments(args: string): Record<string, unknown> | string {
  // Some services send nothing for a call without arguments.
  if (args.trim() === "") return {};
  let input: unknown;
  try {
    input = JSON.parse(args);
  } catch (error) {
    return `the arguments are not valid JSON: ${error instanceof Error ? error.message : String(error)}`;
  }
  if (typeof input === "object" && input !== null && !Array.isArray(input)) return input as Record<string, unknown>;
  return "the arguments must be a JSON object";
}

function parametersOf(name: string, schema: z.ZodType): JsonObject {
  let parameters: JsonObject;
  try {
    // The model writes what goes in: before defaults and transforms.
    const { $schema: _, ...rest } = z.toJSONSchema(schema, { io: "input" });
    parameters = rest as JsonObject;
  } catch (error) {
    throw new ConfigError(`The schema of tool \`${name}\` has no JSON Schema: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
      param: "schema",
    });
  }
  if (parameters["type"] === "object") return parameters;
  throw new ConfigError(`Expected the schema of tool \`${name}\` to be an object: \`z.object({ … })\``, { param: "schema" });
}

/**
 * Frames (WebSocket messages) of OpenEnv's protocol, version 0.3: JSON objects `{ type, data }`, one response per request. Client and
 * server use the same schemas.
 */
import { z } from "zod";
import { ProtocolError } from "../../client/errors.ts";
import { ArgumentError, OverloadedError } from "../../../base/errors.ts";
import { EnvironmentError } from "../episode/errors.ts";

/** Schema of every frame. */
export const frame = z.looseObject({ type: z.string(), data: z.record(z.string(), z.unknown()).default({}) });

/** Schema of the response to `reset` and `step`. */
export const observationData = z.looseObject({
  observation: z.record(z.string(), z.unknown()),
  reward: z.union([z.number(), z.boolean()]).nullish(),
  done: z.boolean().default(false),
});

/** Schema of the observation after the action `list_tools`. Servers name the schema of the input in either spelling. */
export const toolList = z.looseObject({
  tools: z.array(
    z.looseObject({
      name: z.string().min(1),
      description: z.string().nullish(),
      input_schema: z.record(z.string(), z.unknown()).nullish(),
      inputSchema: z.record(z.string(), z.unknown()).nullish(),
    }),
  ),
});

/** Schema of the observation after the action `call_tool`. */
export const toolObservation = z.looseObject({
  result: z.unknown().optional(),
  error: z.looseObject({ error_type: z.string().optional(), message: z.string() }).nullish(),
});

/** Tool names that the protocol reserves for the environment's own operations. */
export const RESERVED_TOOL_NAMES: ReadonlySet<string> = new Set(["reset", "step", "state", "close"]);

/** Remedy for each error code of the protocol. */
const REMEDIES: Readonly<Record<string, string>> = {
  INVALID_JSON: "the server could not parse the request; check that a proxy does not change WebSocket messages",
  UNKNOWN_TYPE: "the server does not know this request; it needs openenv-core 0.3",
  VALIDATION_ERROR: "compare the data with the schemas at `GET /schema` of the server",
  EXECUTION_ERROR: "the environment's own code failed; see the log of the server",
  CAPACITY_REACHED: "raise the server's `max_concurrent_envs`, or lower `concurrency` of the run",
  FACTORY_ERROR: "the server could not create the environment; see its log",
  SESSION_ERROR: "the server lost the session; retry the rollout (`retries`)",
};

/** Converts the data of an `error` frame to an error that names the request, the server's message and a remedy. */
export function frameError(request: string, url: string, data: Readonly<Record<string, unknown>>): Error {
  const code = typeof data["code"] === "string" ? data["code"] : "unknown";
  const hasCounts = code === "CAPACITY_REACHED" && "max_sessions" in data;
  const sessions = hasCounts ? ` (${String(data["active_sessions"])} of ${String(data["max_sessions"])} sessions in use)` : "";
  const reason = `${String(data["message"] ?? "no message")}${firstProblem(data["errors"])}`;
  const remedy = REMEDIES[code] === undefined ? "" : `; ${REMEDIES[code]}`;
  const message = `OpenEnv server ${url} failed \`${request}\` with ${code}${sessions}: ${reason}${remedy}`;
  if (code === "CAPACITY_REACHED") return new OverloadedError(message, { retryable: true });
  if (code === "VALIDATION_ERROR") return new ArgumentError(message, { param: request });
  if (code === "INVALID_JSON" || code === "UNKNOWN_TYPE") return new ProtocolError(message);
  return new EnvironmentError(message, { reason: code, retryable: code === "SESSION_ERROR" });
}

/** Schema of the problems in the data of a `VALIDATION_ERROR`. */
const validationProblems = z.array(z.looseObject({ loc: z.array(z.unknown()).default([]), msg: z.string() }));

/** Returns the first problem of a validation error in parentheses; `""` for data of other errors. */
function firstProblem(errors: unknown): string {
  const problem = validationProblems.safeParse(errors).data?.[0];
  return problem === undefined ? "" : ` (${problem.loc.map(String).join(".")}: ${problem.msg})`;
}

/** Rollouts as traces in the JSON form of OTLP, the protocol of OpenTelemetry. */
import { createHash } from "node:crypto";
import type { RequestMessage } from "../../base/schema/index.ts";
import type { TrackedRun } from "../train/tracker.ts";
import type { TracedRollout } from "./rollouts.ts";

/** Attribute of a span in OTLP/JSON. */
interface Attribute {
  readonly key: string;
  readonly value: { readonly stringValue: string } | { readonly doubleValue: number } | { readonly intValue: string };
}

/**
 * Converts rollouts to a request `ExportTraceServiceRequest` in OTLP/JSON: one trace with one span per rollout, with the attributes of the
 * OpenTelemetry conventions for generative AI. The ids are hashes of run, step and rollout, so that a rollout sent twice is one trace.
 *
 * @param extra - Returns further attributes of a rollout's span.
 * @see https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
 */
export function otlpRequest(
  run: TrackedRun,
  rollouts: readonly TracedRollout[],
  extra: (rollout: TracedRollout) => Record<string, string>,
) {
  const spans = rollouts.map((rollout) => spanOf(run, rollout, extra(rollout)));
  const resource = { attributes: attributesOf({ "service.name": "whetstone", "whetstone.run.name": run.name }) };
  return { resourceSpans: [{ resource, scopeSpans: [{ scope: { name: "whetstone" }, spans }] }] };
}

/** Returns the span of a rollout. @param extra - Further attributes. */
function spanOf(run: TrackedRun, rollout: TracedRollout, extra: Readonly<Record<string, string>>) {
  const { split, step, scenarioIndex, index, trajectory } = rollout;
  const id = createHash("sha256").update(`${run.id} ${split} ${step} ${scenarioIndex} ${index}`).digest("hex");
  const startMs = trajectory.startTime === null ? 0 : Date.parse(trajectory.startTime);
  const durationMs = Number(trajectory.metrics["duration"] ?? 0) * 1000;
  const name = String(run.config["environment"] ?? run.name);
  // The last message is the output; all messages before it are the input.
  const messages = trajectory.messages().map(genAiMessage);
  const { scenario_id: scenarioId } = trajectory.metadata;
  const policyVersion = trajectory.finalPolicyVersion;
  return {
    traceId: id.slice(0, 32),
    spanId: id.slice(32, 48),
    name: `invoke_agent ${name}`,
    kind: 1, // SPAN_KIND_INTERNAL
    startTimeUnixNano: nanoseconds(startMs),
    endTimeUnixNano: nanoseconds(startMs + durationMs),
    status: { code: 1 }, // STATUS_CODE_OK
    attributes: attributesOf({
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.agent.name": name,
      "gen_ai.request.model": String(run.config["model"] ?? ""),
      "gen_ai.input.messages": JSON.stringify(messages.slice(0, -1)),
      "gen_ai.output.messages": JSON.stringify(messages.slice(-1)),
      "whetstone.run.id": run.id,
      "whetstone.split": split,
      "whetstone.step": step,
      "whetstone.scenario_index": scenarioIndex,
      ...(scenarioId === undefined ? {} : { "whetstone.scenario_id": String(scenarioId) }),
      ...(policyVersion === null ? {} : { "whetstone.policy_version": policyVersion }),
      "whetstone.reward": trajectory.reward,
      ...extra,
    }),
    events: evaluations(rollout, nanoseconds(startMs + durationMs)),
  };
}

/** Returns the total reward and each raw reward as events `gen_ai.evaluation.result`. */
function evaluations({ trajectory }: TracedRollout, timeUnixNano: string) {
  const rewards = Object.entries(trajectory.metrics).filter(([name]) => name.startsWith("reward/"));
  return [["reward", trajectory.reward] as const, ...rewards].map(([name, value]) => ({
    name: "gen_ai.evaluation.result",
    timeUnixNano,
    attributes: attributesOf({ "gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": Number(value) }),
  }));
}

/** Converts a message to the form of the attributes `gen_ai.input.messages` and `gen_ai.output.messages`. */
function genAiMessage(message: RequestMessage) {
  const { role, content } = message;
  if (role === "tool") return { role, parts: [{ type: "tool_call_response", id: message.tool_call_id, response: content }] };
  const text = typeof content === "string" ? content : JSON.stringify(content ?? "");
  const textParts = (content ?? "") === "" ? [] : [{ type: "text", content: text }];
  const calls = role === "assistant" ? (message.tool_calls ?? []) : [];
  const callParts = calls.map((call) => ({ type: "tool_call", id: call.id, name: call.function.name, arguments: call.function.arguments }));
  return { role, parts: [...textParts, ...callParts] };
}

/** Converts values by name to attributes. */
function attributesOf(values: Readonly<Record<string, string | number>>): Attribute[] {
  return Object.entries(values).map(([key, value]) => ({ key, value: attributeValue(value) }));
}

/** Returns a value of OTLP/JSON; 64-bit integers are texts. */
function attributeValue(value: string | number): Attribute["value"] {
  if (typeof value === "string") return { stringValue: value };
  return Number.isInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}

/** Converts milliseconds to nanoseconds as text. */
function nanoseconds(ms: number): string {
  return `${BigInt(Math.round(ms)) * 1_000_000n}`;
}

/** The embedded service with the shipped tokenizer and a scripted model that records its samples. */
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";
import { connect, type Service } from "../../src/index.ts";
import type { Trajectory as WireTrajectory } from "../../src/base/schema/index.ts";
import { buildRlBatch } from "../../src/learner/index.ts";
import type { Trajectory } from "../../src/base/trajectory/index.ts";
import { isChoice } from "../../src/base/trajectory/messages.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import type { ScriptedEngineOptions } from "../../src/testing/index.ts";
import { startTestService, type TestService } from "../service/support.ts";

const MODEL_DIRECTORY = fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url));
export const tokenizer = await loadTokenizer(MODEL_DIRECTORY);
const END = tokenizer.eosTokenIds[0]!;
const CONTEXT = 6000;

/** Returns ids that spell a text letter by letter. An encoder would merge them, so re-encoded ids differ from sampled ones. */
export const spelled = (text: string): number[] => [...text].flatMap((letter) => [...tokenizer.encode(letter)]);

/** A turn sampled by the engine. */
export interface Sampled {
  readonly prompt: readonly number[];
  readonly ids: readonly number[];
}

export interface Harness {
  readonly service: Service;
  readonly policy: Awaited<ReturnType<Awaited<ReturnType<Service["models"]["create"]>>["policy"]>>;
  /** All turns that the engine sampled, in order of their start. */
  readonly sampled: readonly Sampled[];
  readonly test: TestService;
  /** A client's `baseURL` and `apiKey`. */
  readonly address: { readonly baseURL: string; readonly apiKey: string };
}

/** Options of {@link startHarness} besides the answers. */
export interface HarnessOptions {
  /** Parser of the service for reasoning. @default "none" */
  readonly reasoningParser?: "none" | "think";
  /** Returns the sampled ids in place of spelled answers. */
  readonly script?: () => readonly number[];
}

/** @param says - Returns the model's answer for the text of a prompt, without the end token. */
export async function startHarness(
  says: (prompt: string) => string,
  before?: ScriptedEngineOptions["before"],
  { reasoningParser = "none", script }: HarnessOptions = {},
): Promise<Harness> {
  const sampled: Sampled[] = [];
  const test = await startTestService({
    limits: { chat: { reasoningParser } },
    engine: {
      bases: [{ id: "tiny", directory: MODEL_DIRECTORY, vocabularySize: tokenizer.vocabularySize, contextLength: CONTEXT, parameters: 1 }],
      script: ({ prompt }) => {
        const ids = script === undefined ? [...spelled(says(tokenizer.decode(prompt))), END] : [...script()];
        sampled.push({ prompt: [...prompt], ids });
        return ids;
      },
      before,
    },
  });
  const service = await connect({ baseUrl: test.service.url, apiKey: test.service.apiKey });
  onTestFinished(() => service.close());
  const model = await service.models.create({ project: "demo", name: "agent", baseModel: "tiny" });
  const policy = await model.policy();
  return { service, policy, sampled, test, address: { baseURL: service.inferenceUrl, apiKey: service.apiKey } };
}

/** Start of an assistant turn in the text of a prompt. */
const ASSISTANT = "<|assistant|>";

const call = (args: string): string => `<tool_call>{"name": "add",  "arguments": ${args}}</tool_call>`;

/** Answers to two questions, each after a tool call; the second call has no other text. */
const SCRIPT = [`Let me see. ${call('{"a":1, "b": 2}')}`, "it is 3", call('{ "b": 3,"a": 3}'), "twice is 6"];

/** Returns the answer for the number of previous assistant turns. */
export function conversation(prompt: string): string {
  return SCRIPT[prompt.split(ASSISTANT).length - 2] ?? "no more";
}

export const QUESTIONS = ["1 + 2?", "and twice?"] as const;
export const ANSWERS = ["it is 3", "twice is 6"] as const;
export const ADD_SCHEMA = {
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
  additionalProperties: false,
} as const;

/** Returns the ids of all turns of a trajectory, main history first. */
export function turnsOf(recorded: Trajectory): Sampled[] {
  const wire = recorded.toJSON();
  return [wire, ...wire.additional_histories].flatMap(({ messages_and_choices: items }) =>
    items.filter(isChoice).map((choice) => ({ prompt: choice.prompt_token_ids ?? [], ids: choice.token_ids ?? [] })),
  );
}

/** Returns the learner's statistics for a trajectory in a group with a worse one. */
export function learned(recorded: Trajectory) {
  const wire = recorded.toJSON();
  const worse = { ...wire, reward: wire.reward - 1 };
  const batch = buildRlBatch(
    [{ trajectories: [wire, worse], exceptions: [], metadata: {}, metrics: {}, logs: [] }],
    {},
    { contextLength: CONTEXT, vocabularySize: tokenizer.vocabularySize },
  );
  const { metrics } = batch;
  return {
    rows: batch.rows.length / 2,
    mergedTurns: metrics["data/merged_turns"]! / 2,
    driftedTurns: metrics["data/drifted_turns"],
    tokens: [...batch.rows[0]!.tokens],
  };
}

/** Expects every sampled token in one row, no drifted turn, and the lines `logs` of rejected requests. */
export function expectOneRow(recorded: Trajectory, { sampled, policy }: Harness, logs: readonly unknown[] = []): void {
  expect(turnsOf(recorded)).toEqual(sampled);
  expect(recorded.toJSON().additional_histories).toEqual([]);
  expect(recorded.logs).toEqual(logs);
  expect(recorded.choices.every((choice) => choice.policy_version === policy.step)).toBe(true);
  const last = sampled.at(-1)!;
  expect(learned(recorded)).toEqual({ rows: 1, mergedTurns: sampled.length - 1, driftedTurns: 0, tokens: [...last.prompt, ...last.ids] });
}

function valueOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/**
 * Returns a trajectory without the differences between dialects: identifiers of tool calls, bytes of tokens, whitespace in arguments,
 * absent values, and `stop_reason`, which the Responses API does not have.
 */
export function comparable({ messages_and_choices: items, additional_histories: others, tools }: WireTrajectory): unknown {
  const ids = new Map<string, string>();
  const plain = JSON.stringify({ items, others, tools }, (key, value: unknown) => {
    if (value === null || value === "" || (Array.isArray(value) && value.length === 0)) return undefined;
    if (key === "stop_reason" || key === "index") return undefined;
    if (key === "arguments") return valueOf(value as string);
    if (key === "bytes" || key === "top_logprobs") return undefined;
    if ((key !== "id" && key !== "tool_call_id") || typeof value !== "string") return value;
    if (!ids.has(value)) ids.set(value, `call ${ids.size}`);
    return ids.get(value);
  });
  return JSON.parse(plain);
}

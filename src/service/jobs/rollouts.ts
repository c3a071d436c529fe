/** Rollouts of a reinforcement job: samples of rows and their rewards. */
import { createHash } from "node:crypto";
import PQueue from "p-queue";
import { OverloadedError, type WhetstoneError } from "../../base/errors.ts";
import type { ChatCompletion, ChatCompletionRequest, Grader, JsonObject, Trajectory } from "../../base/schema/index.ts";
import { textOf } from "../../base/trajectory/messages.ts";
import { toHistories, toHistoryMembers } from "../../base/trajectory/histories.ts";
import { delay } from "../../base/util/delay.ts";
import { first } from "../../base/util/values.ts";
import { grade, type Similarity } from "../../graders/grade.ts";
import { firstFailure } from "../../graders/errors.ts";
import type { GraderComplete } from "../../graders/model.ts";
import { gradedSample } from "../../graders/sample.ts";
import type { ReinforcementRow } from "../training-data/reinforcement-data.ts";
import type { JobChat } from "./job-chat.ts";

/** Max rollouts at the same time, below the capacity of the service, so that requests of clients have room, too. */
const CONCURRENCY = 64;
/** Milliseconds until a request that was rejected for lack of room is sent again. */
const RETRY_MS = 50;

/** Settings that sample the unmodified distribution of the model, which the loss assumes. */
const PLAIN_SAMPLING = { temperature: 1, top_p: 1, top_k: 0, min_p: 0, repetition_penalty: 1 } as const;

/** Rollout to make: a sample of a row. */
export interface PlannedSample {
  readonly row: ReinforcementRow;
  readonly seed: number;
}

/** Graded sample. */
export interface GradedRollout {
  readonly trajectory: Trajectory;
  /** Failure of the grader, such as a request to a model that failed; null if the sample has a reward. */
  readonly failure: WhetstoneError | null;
}

/** Context of {@link playRollouts}. */
export interface JobRolloutContext {
  readonly chat: JobChat;
  /** Name of the weights. */
  readonly model: string;
  /** Step of the newest checkpoint, for the trajectories. */
  readonly step: number;
  readonly grader: Grader;
  /** Computes the grader's text metrics. */
  readonly similarity: Similarity;
  /** Members of every request. */
  readonly request: JsonObject;
  readonly signal: AbortSignal;
}

/**
 * Returns the seed of a sample, from 0 to 2⁴⁸ − 1. It depends on its arguments alone, so that a resumed job samples the same.
 *
 * @param jobSeed - Seed of the job.
 * @param path - Kind of the sample (`train` or `validation`), then the indices that identify it.
 */
export function sampleSeed(jobSeed: number, path: readonly (string | number)[]): number {
  return createHash("sha256")
    .update([jobSeed, ...path].join(":"))
    .digest()
    .readUIntBE(0, 6);
}

/** Returns the chat request of a row. `members` are further members of the request. */
export function rowRequest({ messages, tools }: ReinforcementRow, model: string, members: JsonObject): ChatCompletionRequest {
  return { model, messages: [...messages], ...(tools.length === 0 ? {} : { tools: [...tools] }), ...members };
}

/**
 * Samples and grades rollouts, several at the same time.
 *
 * @returns the rollouts in the order of the plans.
 * @throws the first error of a sample, after all others were aborted, and the signal's reason.
 */
export async function playRollouts(context: JobRolloutContext, plans: readonly PlannedSample[]): Promise<GradedRollout[]> {
  const queue = new PQueue({ concurrency: CONCURRENCY });
  // Aborted with the first error of a sample.
  const failed = new AbortController();
  const signal = AbortSignal.any([context.signal, failed.signal]);
  const play = async (plan: PlannedSample) => {
    signal.throwIfAborted();
    return playRollout({ ...context, signal }, plan).catch((error: unknown) => {
      failed.abort(error);
      throw error;
    });
  };
  // Waits for all samples also after an error, because the caller releases the weights after the call.
  const settled = await Promise.allSettled(plans.map((plan) => queue.add(() => play(plan))));
  signal.throwIfAborted();
  return settled.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
}

/** Samples and grades one rollout. */
async function playRollout(context: JobRolloutContext, { row, seed }: PlannedSample): Promise<GradedRollout> {
  const { chat, model, step, grader, similarity, signal } = context;
  const members = { ...context.request, ...PLAIN_SAMPLING, seed, logprobs: true, return_token_ids: true };
  const request = rowRequest(row, model, members);
  const completion = await withRoom(() => chat.sample(request, { signal }), signal);
  const choice = first(completion.choices);
  const sample = { output_text: textOf(choice.message), output_tools: choice.message.tool_calls ?? [], choices: [choice] };
  // A model grader without a seed gets the seed of the sample, so that a resumed job has the same rewards.
  const complete: GraderComplete = (graderRequest, options) => withRoom(() => chat.complete({ seed, ...graderRequest }, options), signal);
  const values = { item: row.item, sample: gradedSample(sample) };
  const { reward, errors } = await grade(grader, { values, complete, similarity, signal });
  return { trajectory: trajectoryOf(request, completion, { reward, step }), failure: firstFailure(errors) };
}

/** Sends a request, and repeats it every {@link RETRY_MS} while the service rejects it for lack of room. */
async function withRoom(send: () => Promise<ChatCompletion>, signal: AbortSignal): Promise<ChatCompletion> {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof OverloadedError)) throw error;
      await delay(RETRY_MS, { signal });
    }
  }
}

/** Returns the trajectory of a single request. */
function trajectoryOf(
  request: ChatCompletionRequest,
  completion: ChatCompletion,
  { reward, step }: { readonly reward: number; readonly step: number },
): Trajectory {
  const { histories } = toHistories([{ order: 0, request, completion }], step);
  const versions = { initial_policy_version: step, final_policy_version: step };
  return { ...toHistoryMembers(histories), reward, ...versions, metrics: {}, metadata: {}, logs: [] };
}

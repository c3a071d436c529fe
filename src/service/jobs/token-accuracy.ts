/** Mean token accuracy of a model on token sequences. */
import type { TokenSequence } from "../../learner/index.ts";
import type { PromptToken, SamplingParams } from "../../engine/port.ts";
import { UnsupportedError } from "../../base/errors.ts";
import { zip } from "../../base/util/values.ts";
import { logFailure } from "../common/logger.ts";
import type { JobScope } from "./run-job.ts";

/** Sequences that are scored at the same time. */
const CONCURRENCY = 16;

/** Parameters of a request that scores its prompt, and samples the one token that an engine samples at least. */
const SCORING: SamplingParams = {
  maxTokens: 1,
  temperature: 0,
  topP: 1,
  topK: 0,
  seed: 0n,
  stopTokenIds: [],
  topLogprobs: 0,
  promptLogprobs: 0,
};

/**
 * Returns the fraction of the trained tokens that are the most likely token at their position, as the current weights predict them from the
 * tokens before. The sampler scores the sequences as prompts. It leaves out the last token of a sequence that fills the context, because
 * the engine samples at least one token after a prompt.
 *
 * @returns null if the engine does not score prompts, and without trained tokens.
 */
export async function tokenAccuracy(
  { context: { engine, logger }, handle, base, signal, job }: JobScope,
  sequences: readonly TokenSequence[],
): Promise<number | null> {
  const policy = await engine.publish(handle, { signal });
  const maxTokens = base.contextLength - 1;
  /** Returns the scores of the tokens of a prompt, without its first token. */
  const score = async (prompt: Int32Array): Promise<readonly PromptToken[]> => {
    for await (const { prompt: scored } of engine.sample(policy, prompt, SCORING, { signal })) return scored ?? [];
    return [];
  };
  let correctCount = 0;
  let trainedCount = 0;
  try {
    for (let start = 0; start < sequences.length; start += CONCURRENCY) {
      const batch = sequences.slice(start, start + CONCURRENCY);
      const scores = await Promise.all(batch.map(({ tokens }) => score(tokens.subarray(0, maxTokens))));
      for (const [{ mask }, scoredTokens] of zip(batch, scores))
        for (const [index, { rank }] of scoredTokens.entries()) {
          // The first token of a prompt has no score, so the score at `index` is of the token at `index + 1`.
          if (mask[index + 1] !== 1) continue;
          trainedCount++;
          if (rank === 1) correctCount++;
        }
    }
  } catch (error) {
    if (error instanceof UnsupportedError) return null;
    throw error;
  } finally {
    await engine.release(policy).catch(logFailure(logger, "The weights of a validation could not be released", { job: job.id }));
  }
  return trainedCount === 0 ? null : correctCount / trainedCount;
}

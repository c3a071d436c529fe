/** Problems that keep a sampled turn from being trained, and their messages. */

import type { AssistantChoice } from "../schema/index.ts";

/** Reason why a sampled turn cannot be trained. */
export type TurnProblem =
  | "choice-without-token-ids"
  | "choice-without-logprobs"
  | "empty-choice"
  | "token-count-mismatch"
  | "non-finite-logprob";

/** Remedies that several messages share. */
const KEEP = "Keep both exactly as the service sent them; do not cut or edit a sampled turn.";
const CONTEXT = "append the whole choice, not only its message; a turn that is only context belongs in a plain message.";

/** Message for each problem, with its fix; preflight and the learner share these messages. */
export const TURN_PROBLEMS: Readonly<Record<TurnProblem, string>> = {
  "choice-without-token-ids": `A choice has no token ids (\`prompt_token_ids\` and \`token_ids\`). Sample with \`t.sample(policy)\`, or request \`return_token_ids: true\` and ${CONTEXT}`,
  "choice-without-logprobs": `A choice has no log-probabilities (\`logprobs.content\`). Sample with \`t.sample(policy)\`, or request \`logprobs: true\` and ${CONTEXT}`,
  "empty-choice": `A choice has no prompt token or no sampled token. ${KEEP}`,
  "token-count-mismatch": `A choice has not as many log-probabilities as token ids. ${KEEP}`,
  "non-finite-logprob": `A sampled token's log-probability is not a finite number of at most 0. ${KEEP}`,
};

/** Message for a group that has trajectories but no sampled turn in any of them. */
export const NO_SAMPLED_TURN = `A group has no sampled turn, only messages. Sample with \`t.sample(policy)\`, or request \`logprobs: true\` and \`return_token_ids: true\` and append the whole choice, not only its message.`;

/** Tolerance above 0 for log-probabilities: a float32 log-softmax may round to slightly above 0. */
const LOGPROB_TOLERANCE = 1e-6;

/** Returns the first problem that keeps a choice from being trained; null for a trainable choice. */
export function turnProblem(choice: AssistantChoice): TurnProblem | null {
  const { prompt_token_ids: prompt, token_ids: sampled } = choice;
  const entries = choice.logprobs?.content;
  if (!prompt || !sampled) return "choice-without-token-ids";
  if (!entries || (entries.length === 0 && sampled.length > 0)) return "choice-without-logprobs";
  if (entries.length !== sampled.length) return "token-count-mismatch";
  if (prompt.length === 0 || sampled.length === 0) return "empty-choice";
  const hasInvalidLogprob = entries.some(({ logprob }) => !Number.isFinite(logprob) || logprob > LOGPROB_TOLERANCE);
  return hasInvalidLogprob ? "non-finite-logprob" : null;
}

/** Options of the examination of a batch, derived from the settings of the RL job that will train the batch. */
import type { ExamineOptions } from "./ports.ts";
import type { RlOptions } from "./wire.ts";

/** Returns the options of preflight that match the settings of an RL job: it accepts the batches that the job can train. */
export function examinationOf(config: RlOptions): ExamineOptions {
  // Turns without log-probabilities may come from other services, which do not return token ids either.
  const isLenient = config.allowTrainingWithoutLogprobs === true;
  return {
    allowsUnknownLogprobs: isLenient,
    rendersTokenIds: isLenient,
    masksTruncated: config.maskTruncated === true,
    usesTurnRewards: config.turnRewards === true,
  };
}

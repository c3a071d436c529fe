/** Warning about training data with bytes that the vocabulary of the base model has no token for. */
import type { JobScope } from "./run-job.ts";

/** Parts of the data, such as examples, with such bytes: their number, and the noun for one and for many. */
interface Parts {
  readonly count: number;
  readonly one: string;
  readonly many: string;
}

/**
 * Emits the warning `missing-tokens` of a job, unless its data have no such bytes.
 *
 * @param bytes - Number of bytes without a token.
 * @param parts - Parts of the data that have such bytes.
 */
export async function warnOfMissingTokens({ emit }: Pick<JobScope, "emit">, bytes: number, parts: Parts): Promise<void> {
  if (bytes === 0) return;
  const shown = ({ count, one, many }: Parts) => `${count} ${count === 1 ? one : many}`;
  const message = `${shown({ count: bytes, one: "byte", many: "bytes" })} in ${shown(parts)} have no token in the model's vocabulary: they were left out, or became its unknown token. Remove these characters from the data, or choose another base model.`;
  const data = { code: "missing-tokens", value: bytes, threshold: 0, message };
  await emit({ key: "warning:data:missing-tokens", type: "warning", data });
}

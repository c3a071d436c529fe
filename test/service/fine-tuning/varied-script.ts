import { createHash } from "node:crypto";
import type { SampleScriptInput } from "whetstone/testing";

/** Number of tokens of an answer. */
const LENGTH = 4;

/** Script of an engine whose answers depend on seed, weights and prompt: some tokens of the prompt. */
export function variedScript({ params, weight, prompt }: SampleScriptInput): number[] {
  const bytes = createHash("sha256").update(`${params.seed} ${weight} ${prompt.join()}`).digest();
  return Array.from({ length: LENGTH }, (_, index) => prompt[bytes[index]! % prompt.length]!);
}

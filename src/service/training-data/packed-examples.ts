/** Transfer format of training data between threads: a few long arrays instead of two short ones per sequence. */
import type { TokenSequence } from "../../learner/index.ts";
import { runStepsInSlices, type Steps } from "../../base/util/steps.ts";
import type { ExampleData } from "./example-data.ts";

/** {@link ExampleData} with all sequences concatenated: E examples, S sequences, T tokens. */
export interface PackedExamples extends Omit<ExampleData, "examples"> {
  /** Number of sequences per example, shape `[E]`. */
  readonly counts: Int32Array;
  /** Number of tokens per sequence, shape `[S]`. */
  readonly lengths: Int32Array;
  /** Weight per sequence, shape `[S]`; NaN for a sequence without a weight. */
  readonly weights: Float64Array;
  /** Tokens of all sequences, shape `[T]`. */
  readonly tokens: Int32Array;
  /** Loss mask of all sequences, shape `[T]`. */
  readonly mask: Uint8Array;
}

/** Packs training data for transfer. */
export function packExamples({ examples, ...counters }: ExampleData): PackedExamples {
  const sequences = examples.flat();
  const tokenCount = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const packed = {
    ...counters,
    counts: Int32Array.from(examples, (example) => example.length),
    lengths: Int32Array.from(sequences, ({ tokens }) => tokens.length),
    weights: Float64Array.from(sequences, ({ weight }) => weight ?? NaN),
    tokens: new Int32Array(tokenCount),
    mask: new Uint8Array(tokenCount),
  };
  let offset = 0;
  for (const { tokens, mask } of sequences) {
    packed.tokens.set(tokens, offset);
    packed.mask.set(mask, offset);
    offset += tokens.length;
  }
  return packed;
}

/** Returns the buffers of packed data, for transfer instead of copying. */
export function buffersOf({ counts, lengths, weights, tokens, mask }: PackedExamples): ArrayBuffer[] {
  return [counts, lengths, weights, tokens, mask].map(({ buffer }) => buffer as ArrayBuffer);
}

/** Unpacks training data in time slices, so that the event loop is not blocked. */
export async function unpackExamples({ counts, lengths, weights, tokens, mask, ...counters }: PackedExamples): Promise<ExampleData> {
  function* unpacked(): Steps<TokenSequence[][]> {
    let sequenceIndex = 0;
    let offset = 0;
    const examples: TokenSequence[][] = [];
    for (const count of counts) {
      const example: TokenSequence[] = [];
      for (let index = 0; index < count; index++, sequenceIndex++) {
        const sequenceEnd = offset + lengths[sequenceIndex]!;
        const weight = weights[sequenceIndex]!;
        // Copied, because a view would be sent to the training thread with its whole underlying array.
        const sequence = { tokens: tokens.slice(offset, sequenceEnd), mask: mask.slice(offset, sequenceEnd) };
        example.push(Number.isNaN(weight) ? sequence : { ...sequence, weight });
        offset = sequenceEnd;
      }
      examples.push(example);
      yield;
    }
    return examples;
  }
  return { ...counters, examples: await runStepsInSlices(unpacked()) };
}

/** Training data on its way between threads: a few long arrays instead of two short ones per sequence. */
import type { TokenSequence } from "../../learner/index.ts";
import { runStepsInSlices, type Steps } from "../../util/steps.ts";
import type { SftData } from "../jobs/sft-data.ts";

/** {@link SftData} with all sequences one after another. */
export interface PackedSftData extends Omit<SftData, "examples"> {
  /** Sequences of each example. */
  readonly counts: Int32Array;
  /** Tokens of each sequence. */
  readonly lengths: Int32Array;
  /** Weight of each sequence; NaN without one. */
  readonly weights: Float64Array;
  readonly tokens: Int32Array;
  readonly mask: Uint8Array;
}

/** Packs data. */
export function packSftData({ examples, ...counts }: SftData): PackedSftData {
  const sequences = examples.flat();
  const total = sequences.reduce((sum, { tokens }) => sum + tokens.length, 0);
  const packed = {
    ...counts,
    counts: Int32Array.from(examples, (example) => example.length),
    lengths: Int32Array.from(sequences, ({ tokens }) => tokens.length),
    weights: Float64Array.from(sequences, ({ weight }) => weight ?? NaN),
    tokens: new Int32Array(total),
    mask: new Uint8Array(total),
  };
  let at = 0;
  for (const { tokens, mask } of sequences) {
    packed.tokens.set(tokens, at);
    packed.mask.set(mask, at);
    at += tokens.length;
  }
  return packed;
}

/** Buffers of packed data, to be moved instead of copied. */
export function buffersOf({ counts, lengths, weights, tokens, mask }: PackedSftData): ArrayBuffer[] {
  return [counts, lengths, weights, tokens, mask].map(({ buffer }) => buffer as ArrayBuffer);
}

/** Unpacks data, in slices. */
export async function unpackSftData({ counts, lengths, weights, tokens, mask, ...rest }: PackedSftData): Promise<SftData> {
  function* unpacked(): Steps<TokenSequence[][]> {
    let [sequence, at] = [0, 0];
    const examples: TokenSequence[][] = [];
    for (const count of counts) {
      const example: TokenSequence[] = [];
      for (let index = 0; index < count; index++, sequence++) {
        const end = at + lengths[sequence]!;
        const weight = weights[sequence]!;
        // Copies: a view would take the whole array along to the thread that trains.
        const own = { tokens: tokens.slice(at, end), mask: mask.slice(at, end) };
        example.push(Number.isNaN(weight) ? own : { ...own, weight });
        at = end;
      }
      examples.push(example);
      yield;
    }
    return examples;
  }
  return { ...rest, examples: await runStepsInSlices(unpacked()) };
}

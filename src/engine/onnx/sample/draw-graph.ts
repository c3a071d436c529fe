/**
 * Draw of one token per row inside a graph, so that a device (GPU) returns two numbers per row instead of distributions over the
 * vocabulary.
 */
import {
  add,
  cast,
  concat,
  cumulativeSum,
  equal,
  exp,
  gatherRows,
  lessOrEqual,
  log,
  minimum,
  mul,
  padLast,
  reduceMax,
  reduceSum,
  reshape,
  sub,
  type Value,
  where,
} from "../graph/index.ts";
import type { TensorConstructor, Tensors } from "../runtime/program.ts";

/** Random numbers and temperatures of the rows of a batch. */
export interface DrawInputs {
  /** Uniform random number in [0, 1) of each row, `[S]`; 0 at temperature 0. */
  readonly uniforms: Float32Array;
  /** `1 / temperature` of each row, `[S]`; at temperature 0, {@link MAX_INVERSE_TEMPERATURE}. */
  readonly inverseTemperatures: Float32Array;
}

/** Tokens drawn inside a graph. */
export interface DrawnTokens {
  /** Token ids, `[S]`. */
  readonly ids: Float32Array;
  /** Log-probabilities of the tokens at temperature 1, `[S]`; not finite if a logit is NaN or +∞. */
  readonly logprobs: Float32Array;
}

/**
 * Inverse temperature of greedy rows. It leaves a weight above 0 only to the largest logits, because logits that differ by less than 1e-28
 * are equal in float32 unless they are below 1e-21.
 */
export const MAX_INVERSE_TEMPERATURE = 2 ** 100;

/** Largest float32 below 1. `x · BELOW_ONE < x` for every normal `x > 0`. */
export const BELOW_ONE = 1 - 2 ** -24;

/** Logit of padding: its weight is 0. */
const PADDING = -3e38;

/** Max size of a block, and the size if neither it nor its half or quarter divides the vocabulary. */
const BLOCK = 512;

/** Returns the number of consecutive tokens in a block; the last block may be padded. */
function blockSize(vocabularySize: number): number {
  if (vocabularySize <= BLOCK) return vocabularySize;
  return [BLOCK, BLOCK / 2, BLOCK / 4].find((size) => vocabularySize % size === 0) ?? BLOCK;
}

/**
 * Draws a token from `softmax(logits / temperature)` for each row, by the inverse of the cumulative distribution, and declares the output
 * `drawn`, `[S, 2]`: ids and log-probabilities. One output, because each costs a transfer.
 *
 * Sums are computed in blocks of the vocabulary: first the block is found in which the cumulative weight exceeds the target, then the token
 * in the block. Cumulative weights never decrease, so the number of elements at or below the target is the index of the drawn element, and
 * an element with weight 0 is never drawn. Indices are float32 and exact up to 2^24.
 *
 * With an infinite weight or a NaN the ids have no meaning, but stay in range, and the log-probability is not finite.
 *
 * @param logits - `[S, V]`.
 */
export function drawOutputs(logits: Value): void {
  const { graph } = logits;
  const [rows, V] = logits.shape as [string, number];
  const size = blockSize(V);
  const blocks = Math.ceil(V / size);
  const uniforms = graph.input("uniforms", [rows, 1]);
  const inverseTemperatures = graph.input("inverse_temperatures", [rows, 1, 1]);
  const firstBlocks = graph.input("first_blocks", [rows, 1]);

  const raw = reshape(padLast(logits, blocks * size, PADDING), [rows, blocks, size]);
  const centered = sub(raw, reduceMax(reduceMax(raw, [2]), [1]));
  const logTotal = log(reduceSum(reduceSum(exp(centered), [2]), [1]));
  const weights = exp(mul(centered, inverseTemperatures));

  const cumulative = cumulativeSum(reshape(reduceSum(weights, [2]), [rows, blocks]), 1);
  const target = mul(uniforms, reduceMax(cumulative, [1]));
  const isBefore = lessOrEqual(cumulative, target);
  const block = minimum(countOf(isBefore), graph.scalar(blocks - 1));
  const before = reduceMax(where(isBefore, cumulative, graph.scalar(0)), [1]);

  const index = reshape(cast(add(firstBlocks, block), "int32"), [rows]);
  const blockOf = (x: Value) => gatherRows(reshape(x, ["blocks", size]), index);
  const inBlock = cumulativeSum(blockOf(weights), 1);
  // A block's sum is rounded differently from its cumulative sum, so the rest of the target may reach beyond the last weight.
  const last = mul(reduceMax(inBlock, [1]), graph.scalar(BELOW_ONE));
  const position = countOf(lessOrEqual(inBlock, minimum(sub(target, before), last)));

  const indices = Float32Array.from({ length: size }, (_, i) => i);
  const positions = graph.constant(indices, [size]);
  const chosen = reduceSum(where(equal(positions, position), blockOf(centered), graph.scalar(0)), [1]);
  const ids = add(mul(block, graph.scalar(size)), position);
  graph.output("drawn", concat([ids, sub(chosen, reshape(logTotal, [rows, 1]))], 1, 2));
}

/** Reads the output of {@link drawOutputs}. */
export function drawnTokens(drawn: Float32Array): DrawnTokens {
  const column = (index: number) => Float32Array.from({ length: drawn.length / 2 }, (_, row) => drawn[2 * row + index]!);
  return { ids: column(0), logprobs: column(1) };
}

/** Returns the number of true elements in each row of a matrix, `[S, 1]`. */
function countOf(condition: Value): Value {
  return reduceSum(cast(condition, "float32"), [1]);
}

/** Returns the inputs of {@link drawOutputs}. `first_blocks` has the index of each row's first block among the blocks of all rows. */
export function drawFeeds(TensorClass: TensorConstructor, { uniforms, inverseTemperatures }: DrawInputs, vocabularySize: number): Tensors {
  const rows = uniforms.length;
  const blocks = Math.ceil(vocabularySize / blockSize(vocabularySize));
  const firstBlocks = Float32Array.from({ length: rows }, (_, row) => row * blocks);
  return {
    uniforms: new TensorClass("float32", uniforms, [rows, 1]),
    inverse_temperatures: new TensorClass("float32", inverseTemperatures, [rows, 1, 1]),
    first_blocks: new TensorClass("float32", firstBlocks, [rows, 1]),
  };
}

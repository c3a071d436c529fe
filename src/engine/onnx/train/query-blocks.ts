/** Query blocks: the cut of a row's queries for attention. Each graph is compiled for one cut, so there are few different cuts. */
import type { ModelConfig } from "../model/config.ts";
import type { PaddedBlock, TrainBatch } from "./batch.ts";

/** Cut of the queries of a padded block's rows. */
export interface QueryBlocks {
  /** Blocks per row. */
  readonly count: number;
  /** Whether the backward pass recomputes attention probabilities instead of keeping them. */
  readonly recompute: boolean;
}

/** Attention over the padded blocks of a batch: the only properties of a batch that a graph is compiled for. */
export interface GraphShape {
  /** Null if the packed rows continue no prompt. */
  readonly prompts: QueryBlocks | null;
  readonly packedRows: QueryBlocks;
}

/**
 * Returns the number of blocks that the queries of a row of `time` tokens are cut into. Keys after a block are never computed, so more
 * blocks mean less work and more kernels. A power of two, so that rows of many lengths run through few graphs.
 */
export function queryBlocks(time: number): number {
  if (time <= 96) return 1;
  if (time <= 256) return time <= 128 ? 2 : 4;
  return 2 ** Math.ceil(Math.log2(time / (time <= 1024 ? 128 : 256)));
}

/** Max length of a row of a large model that is one query block, in tokens. */
export const LARGE_MODEL_BLOCK = 256;

/**
 * Returns the number of blocks in a large model, where attention is a small part of the work: rows of up to 256 tokens run through one
 * graph, because each graph takes seconds to compile and holds the memory of its largest run.
 */
export function largeModelQueryBlocks(time: number): number {
  return time <= LARGE_MODEL_BLOCK ? 1 : queryBlocks(time);
}

/** Max length of a query block on a device, in tokens. */
export const DEVICE_BLOCK = 512;

/** Returns the number of blocks on a device, where few kernels matter more than the work that shorter blocks save. */
export function deviceQueryBlocks(time: number): number {
  return time <= DEVICE_BLOCK ? 1 : 2 ** Math.ceil(Math.log2(time / DEVICE_BLOCK));
}

/**
 * Returns the graph shape of a batch. Attention probabilities are kept for the backward pass until the probabilities of a query would take
 * more memory than everything else kept for it; they are recomputed if rows, or the prompts they continue, are longer than 512 tokens, or
 * both are longer than 128.
 */
export function graphShape({ prompts, packedRows }: Pick<TrainBatch, "prompts" | "packedRows">): GraphShape {
  const [before, own] = [prompts?.time ?? 0, packedRows.time];
  return {
    prompts: prompts && { count: prompts.blocks, recompute: before > 512 },
    packedRows: { count: packedRows.blocks, recompute: Math.max(before, own) > 512 || Math.min(before, own) > 128 },
  };
}

/** Returns the bytes of the attention probabilities of a batch in all layers. */
export function probabilityBytes(
  { layers, heads }: ModelConfig,
  { prompts, packedRows }: Pick<TrainBatch, "prompts" | "packedRows">,
): number {
  const pairsOf = ({ count, time, blocks }: PaddedBlock, before: number) =>
    // A query attends to the keys up to the end of its block.
    count * time * (before + (time * (blocks + 1)) / (2 * blocks));
  const pairs = (prompts ? pairsOf(prompts, 0) : 0) + pairsOf(packedRows, prompts?.time ?? 0);
  return 4 * layers * heads * pairs;
}

/** Returns {@link graphShape} of a batch, but with all probabilities kept if they take at most `spareBytes`. */
export function deviceGraphShape(config: ModelConfig, batch: TrainBatch, spareBytes: number): GraphShape {
  const { prompts, packedRows } = graphShape(batch);
  if (probabilityBytes(config, batch) > spareBytes) return { prompts, packedRows };
  return { prompts: prompts && { ...prompts, recompute: false }, packedRows: { ...packedRows, recompute: false } };
}

/**
 * Padded lengths are multiples of this times the number of query blocks. This gives few distinct shapes and aligned rows, and a device can
 * cut a sum over all positions into at least as many pieces.
 */
export const PADDING_STEP = 8;

/** Returns the length that a row of `length` tokens is padded to; at least one step. */
export function paddedTime(length: number, blocksOf = queryBlocks): number {
  const step = PADDING_STEP * blocksOf(length);
  return Math.max(step, Math.ceil(length / step) * step);
}

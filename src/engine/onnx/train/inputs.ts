/** Inputs of a gradient graph, built from the rows of a batch. */
import type { Row } from "../../port.ts";
import { type TrainBatch, positionsIn, type PaddedBlock } from "./batch.ts";
import { inputsOf, type PrefixGroup } from "./prefix-groups.ts";
import { itemAt, zip } from "../../../base/util/values.ts";

/** Token ids of a padded block, flat, and the position of each token in its own row. */
export interface Tokens {
  readonly tokens: BigInt64Array;
  readonly positions: BigInt64Array;
}

/** Trained tokens of a batch, one entry each, padded with entries of weight 0. */
export interface TrainedEntries {
  /**
   * Flat index of the position that predicts the token, prompts before packed rows. The first tokens of a prompt's continuations share one
   * index.
   */
  readonly selected: BigInt64Array;
  readonly targets: BigInt64Array;
  readonly weights: Float32Array;
  readonly advantages: Float32Array;
  /** Log-probabilities with which the tokens were sampled; 0 where unknown. */
  readonly old: Float32Array;
  /** 1 where `old` is known, else 0. */
  readonly known: Float32Array;
  /** Number of entries before the padding. */
  readonly count: number;
}

/** Visits the prefix groups of a batch, each with the row of its prompt and its first packed row. */
export function forEachGroup({ groups }: TrainBatch, visit: (group: PrefixGroup, prompt: number, firstPackedRow: number) => void): void {
  let firstPackedRow = 0;
  groups.forEach((group, prompt) => {
    visit(group, prompt, firstPackedRow);
    firstPackedRow += group.packedRows;
  });
}

/**
 * Collects the token ids and positions of both padded blocks.
 *
 * @param startOf - Returns the row of the rotary tables for the first position of a row with a number of inputs. @default 0
 */
export function tokenInputs(
  rows: readonly Row[],
  batch: TrainBatch,
  startOf: (inputs: number) => number = () => 0,
): { prompts: Tokens | null; packedRows: Tokens } {
  const prompts = batch.prompts && emptyTokens(batch.prompts);
  const packedRows = emptyTokens(batch.packedRows);
  forEachGroup(batch, (group, prompt, firstPackedRow) => {
    const { members, shared, continuations } = group;
    // All members of a group have the same table.
    const head = itemAt(rows, itemAt(members, 0));
    const tableRow = startOf(inputsOf(head));
    if (prompts && batch.prompts) write(prompts, prompt * batch.prompts.time, head.tokens, 0, shared, tableRow);
    for (const [index, { packedRow, start, length }] of zip(members, continuations)) {
      const offset = (firstPackedRow + packedRow) * batch.packedRows.time + start;
      write(packedRows, offset, itemAt(rows, index).tokens, shared, length, tableRow);
    }
  });
  return { prompts, packedRows };
}

function emptyTokens({ count, time }: PaddedBlock): Tokens {
  return { tokens: new BigInt64Array(count * time), positions: new BigInt64Array(count * time) };
}

/** Writes `count` tokens of a row from token `from` on, and their positions in the rotary tables, which start at row `tableRow`. */
function write({ tokens, positions }: Tokens, offset: number, source: Int32Array, from: number, count: number, tableRow: number): void {
  for (let t = 0; t < count; t++) {
    tokens[offset + t] = BigInt(source[from + t]!);
    positions[offset + t] = BigInt(tableRow + from + t);
  }
}

/** Builds the one-hot matrix from packed rows to prompts, `[M, G]`: 1 where a packed row continues a prompt; rows of padding are 0. */
export function promptOfPackedRows(batch: TrainBatch, prompts: PaddedBlock): Float32Array {
  const owners = new Float32Array(batch.packedRows.count * prompts.count);
  forEachGroup(batch, ({ packedRows }, prompt, firstPackedRow) => {
    for (let packedRow = firstPackedRow; packedRow < firstPackedRow + packedRows; packedRow++)
      owners[packedRow * prompts.count + prompt] = 1;
  });
  return owners;
}

/**
 * Gathers the trained tokens of a batch, in the order of {@link forEachTrained}.
 *
 * @param minEntries - Min number of entries; padding entries have weight 0.
 */
export function selectTrained(rows: readonly Row[], batch: TrainBatch, minEntries: number): TrainedEntries {
  const count = batch.groups.reduce((sum, { trained }) => sum + trained, 0);
  const size = Math.max(count, minEntries);
  const selection: TrainedEntries = {
    selected: new BigInt64Array(size),
    targets: new BigInt64Array(size),
    weights: new Float32Array(size),
    advantages: new Float32Array(size),
    old: new Float32Array(size),
    known: new Float32Array(size),
    count,
  };
  let entry = 0;
  forEachTrained(rows, batch, (row, t, position) => {
    const old = row.logprobs?.[t] ?? NaN;
    selection.selected[entry] = BigInt(position);
    selection.targets[entry] = BigInt(row.tokens[t]!);
    selection.weights[entry] = row.weights[t]!;
    selection.advantages[entry] = row.advantages?.[t] ?? 0;
    selection.old[entry] = Number.isNaN(old) ? 0 : old;
    selection.known[entry] = Number.isNaN(old) ? 0 : 1;
    entry++;
  });
  return selection;
}

/**
 * Visits the trained tokens of a batch: prefix groups in order, then members, then time. `position` is the flat index of the position that
 * predicts the token, `index` the index of its row in `rows`.
 */
export function forEachTrained(
  rows: readonly Row[],
  batch: TrainBatch,
  visit: (row: Row, t: number, position: number, index: number) => void,
): void {
  const { prompts, packedRows } = batch;
  const packedStart = positionsIn(batch) - packedRows.count * packedRows.time;
  forEachGroup(batch, ({ members, shared, continuations }, prompt, firstPackedRow) => {
    for (const [index, { packedRow, start }] of zip(members, continuations)) {
      const row = itemAt(rows, index);
      // Token `t` of a row is at `promptOffset + t` if it is shared, else at `ownOffset + t`; the position before it predicts it.
      const ownOffset = packedStart + (firstPackedRow + packedRow) * packedRows.time + start - shared;
      const promptOffset = prompt * (prompts?.time ?? 0);
      for (let t = 1; t < row.tokens.length; t++) {
        if (row.weights[t] !== 0) visit(row, t, t <= shared ? promptOffset + t - 1 : ownOffset + t - 1, index);
      }
    }
  });
}

/** Prefix groups: rows with a shared prefix, laid out so that the prefix is computed once. */
import type { Row } from "../../port.ts";
import type { BatchLimits } from "./batch.ts";
import { paddedTime } from "./query-blocks.ts";
import { itemAt } from "../../../base/util/values.ts";

/**
 * Prefix group: consecutive rows with a shared prefix. The shared tokens (the prompt) are laid out once, then each row's own tokens (its
 * continuation). Continuations are packed into rows, several one after another where they fit. A continuation attends to the prompt and to
 * itself, at its positions in its own row, so every row's result equals its result alone. A row that shares nothing is a group with no
 * prompt and one packed row, and so is a row that costs less alone.
 */
export interface PrefixGroup {
  /** Indices into the caller's rows. */
  readonly members: readonly number[];
  /** Number of tokens that all members share, `P`. */
  readonly shared: number;
  /** Continuation of each member, in the order of `members`. */
  readonly continuations: readonly Continuation[];
  /** Number of packed rows. */
  readonly packedRows: number;
  /** Length of the fullest packed row, in tokens. */
  readonly packedLength: number;
  /** Tokens in all, the shared ones counted once. */
  readonly length: number;
  /** Trained tokens of all members. Equal rows each add their own, although they add nothing to `length`. */
  readonly trained: number;
}

/**
 * Continuation: the `length` own tokens of a member, in packed row `packedRow` of its group from `start` on. A continuation of length 0 (a
 * row that is all prompt) occupies no packed row; its `packedRow` and `start` must not be used. A group of equal rows has no packed rows at
 * all.
 */
export interface Continuation {
  readonly packedRow: number;
  readonly start: number;
  readonly length: number;
}

/** Min length of a shared prefix, in tokens: a shorter prefix is not worth its own graph. */
const MIN_SHARED = 8;

/** Cost of a packed row per token of its prompt, in tokens: the prompt's keys and values are copied before the packed row's own. */
const COPY_COST = 1 / 12;

/** Neighboring rows that may become a prefix group. */
interface Candidate {
  /** Number of inputs of each row. */
  readonly lengths: readonly number[];
  /** Number of inputs that all rows share; all inputs of a single row. */
  readonly shared: number;
  /** Sum and maximum of `lengths`. */
  readonly inputs: number;
  readonly longest: number;
  /** Trained tokens of all rows. */
  readonly trained: number;
}

/**
 * Joins neighboring rows with a shared prefix, as long as the joint cost is lower than the separate costs. The rows of a group of samples
 * are neighbors.
 */
export function findPrefixGroups(rows: readonly Row[], limits: BatchLimits): PrefixGroup[] {
  const groups: PrefixGroup[] = [];
  /** Prefix that the next row shares with the group before it, if only a limit separates them; else 0. */
  let sharedWithPrevious = 0;
  for (let first = 0; first < rows.length;) {
    const { candidate, sharedWithNext } = joinRows(rows, first, limits);
    const { lengths, shared, trained } = candidate;
    // A row that is left of a group keeps its prompt, so that it runs through the graph of its group.
    const prompt = lengths.length === 1 ? sharedWithPrevious : shared;
    const continuations = without(prompt, lengths);
    const own = continuations.reduce((sum, length) => sum + length, 0);
    const members = lengths.map((_, index) => first + index);
    groups.push({ members, shared: prompt, ...layOut(continuations, prompt, limits), length: prompt + own, trained });
    sharedWithPrevious = sharedWithNext;
    first += members.length;
  }
  return groups;
}

/**
 * Joins the row at index `first` with the rows after it, until joining the next row costs more or a limit is reached.
 *
 * @returns `sharedWithNext`: prefix that the next row shares with the joined rows, if only a limit separates them; else 0.
 */
function joinRows(
  rows: readonly Row[],
  first: number,
  limits: BatchLimits,
): { readonly candidate: Candidate; readonly sharedWithNext: number } {
  const { maxSharing, maxTrained, tableStartOf = () => 0 } = limits;
  const head = itemAt(rows, first);
  let candidate = single(head);
  for (let next = first + 1; next < rows.length; next++) {
    const row = itemAt(rows, next);
    const common = Math.min(candidate.shared, commonPrefix(head.tokens, row.tokens));
    if (common < MIN_SHARED || tableStartOf(inputsOf(row)) !== tableStartOf(inputsOf(head))) break;
    const alone = single(row);
    const joined = joinedWith(candidate, alone, common);
    if (costOf(joined, limits) >= costOf(candidate, limits) + costOf(alone, limits)) break;
    if (common + ownInputs(joined) > maxSharing || joined.trained > maxTrained) return { candidate, sharedWithNext: common };
    candidate = joined;
  }
  return { candidate, sharedWithNext: 0 };
}

/** Returns the candidate of one row. */
function single(row: Row): Candidate {
  // The last token of a row predicts nothing and is never an input.
  const length = inputsOf(row);
  return { lengths: [length], shared: length, inputs: length, longest: length, trained: weightedTokens(row) };
}

/** Returns a candidate with a further row, of which it shares `common` inputs. */
function joinedWith(candidate: Candidate, row: Candidate, common: number): Candidate {
  return {
    lengths: [...candidate.lengths, ...row.lengths],
    shared: common,
    inputs: candidate.inputs + row.inputs,
    longest: Math.max(candidate.longest, row.longest),
    trained: candidate.trained + row.trained,
  };
}

/** Returns the number of inputs of all rows that are not shared. */
function ownInputs({ lengths, shared, inputs }: Candidate): number {
  return inputs - lengths.length * shared;
}

/** Returns the cost of computing a candidate as one group, in tokens: its inputs, the pairs of queries and keys, and recomputed layers. */
function costOf(candidate: Candidate, limits: BatchLimits): number {
  const { lengths, shared, longest } = candidate;
  const { pairCost, tokenCost } = limits;
  const promptCost = shared * (1 + shared * pairCost);
  const cost = promptCost + ownInputs(candidate) * (1 + longest * pairCost);
  if (tokenCost === undefined) return cost;
  const { packedRows, packedLength } = layOut(without(shared, lengths), shared, limits);
  return cost * tokenCost(paddedPositions(shared, packedRows, packedLength, limits));
}

/** Returns the lengths of rows without the prefix that they share. */
function without(shared: number, lengths: readonly number[]): number[] {
  return lengths.map((length) => length - shared);
}

/** Returns the token positions of a prefix and its packed rows, padding included. */
function paddedPositions(shared: number, packedRows: number, packedLength: number, { blocksOf }: BatchLimits): number {
  return (shared === 0 ? 0 : paddedTime(shared, blocksOf)) + packedRows * paddedTime(packedLength, blocksOf);
}

/**
 * Packs continuations into rows of the cheapest length: longer packed rows hold more continuations and waste less padding, but cost more
 * attention.
 */
function layOut(
  lengths: readonly number[],
  shared: number,
  limits: BatchLimits,
): Pick<PrefixGroup, "continuations" | "packedRows" | "packedLength"> {
  const { pairCost, tokenCost = () => 1, maxPackedLength = Infinity } = limits;
  const own = lengths.reduce((sum, length) => sum + length, 0);
  const longest = paddedTime(lengths.reduce((max, length) => Math.max(max, length), 0));
  let best = { cost: Infinity, packedRows: 0, continuations: [] as Continuation[] };
  for (let size = longest; size <= Math.max(maxPackedLength, longest); size = paddedTime(size * 1.5)) {
    const { packedRows, continuations } = firstFit(lengths, size);
    const factor = tokenCost(paddedPositions(shared, packedRows, size, limits));
    const cost = factor * packedRows * (size * (1 + (shared + size) * pairCost) + shared * COPY_COST);
    if (cost < best.cost) best = { cost, packedRows, continuations };
    if (size >= own) break;
  }
  const packedLength = best.continuations.reduce((max, { start, length }) => Math.max(max, start + length), 0);
  return { continuations: best.continuations, packedRows: best.packedRows, packedLength };
}

/** Packs continuations by first-fit decreasing: the longest first, each into the first packed row with room for it. */
function firstFit(lengths: readonly number[], size: number): { packedRows: number; continuations: Continuation[] } {
  const continuations: Continuation[] = new Array<Continuation>(lengths.length);
  /** Tokens in each packed row so far. */
  const usedLengths: number[] = [];
  for (const [index, length] of [...lengths.entries()].sort(([i, a], [j, b]) => b - a || i - j)) {
    // A row that is all prompt has no continuation to place.
    const found = length === 0 ? 0 : usedLengths.findIndex((used) => used + length <= size);
    const packedRow = found < 0 ? usedLengths.length : found;
    const start = usedLengths[packedRow] ?? 0;
    if (length > 0) usedLengths[packedRow] = start + length;
    continuations[index] = { packedRow, start, length };
  }
  return { packedRows: usedLengths.length, continuations };
}

/** Counts the leading tokens that two rows have in common, their last tokens excluded. */
function commonPrefix(a: Int32Array, b: Int32Array): number {
  const limit = Math.min(a.length, b.length) - 1;
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}

/** Returns the number of tokens of a row that are inputs: all but the last. */
export function inputsOf({ tokens }: Row): number {
  return tokens.length - 1;
}

/** Counts the tokens with a non-zero weight. */
export function weightedTokens(row: Row): number {
  let count = 0;
  for (let t = 1; t < row.weights.length; t++) if (row.weights[t] !== 0) count++;
  return count;
}

/** Rows that share a beginning, laid out so that it is computed once. */
import type { Row } from "../../port.ts";
import type { BatchLimits } from "./batch.ts";
import { paddedTime } from "./query-blocks.ts";

/**
 * Neighbouring rows that share a beginning: its tokens once, the prompt, then what each row has of its own (its branch).
 * Branches lie in lanes, several behind each other where they fit. A branch sees the prompt and itself, at the positions it
 * has in its own row, so every row's result is what it would be alone. A row that shares nothing is a family with no prompt
 * and one lane.
 */
export interface Family {
  /** Indices into the caller's rows. */
  readonly members: readonly number[];
  /** Tokens that all members share, `P`. */
  readonly shared: number;
  /** Where each member's branch lies. */
  readonly branches: readonly Branch[];
  readonly lanes: number;
  /** Of the fullest lane. */
  readonly laneLength: number;
  /** Tokens in all. */
  readonly length: number;
  /** Trained tokens of all members; rows that are equal add some without adding to the length. */
  readonly trained: number;
}

/**
 * A member's own tokens: `length` of them in a lane of its family, starting at `start`. A branch of length 0 (a row that is all prompt)
 * occupies no lane; its `lane` and `start` must not be used. A family whose rows are all equal has no lanes at all.
 */
export interface Branch {
  readonly lane: number;
  readonly start: number;
  readonly length: number;
}

/** Shorter shared beginnings are not worth a graph of their own. */
const MIN_SHARED = 8;

/** What a lane costs for each token of the prompt, in tokens: its keys and values lie before those of the lane once more. */
const COPY_COST = 1 / 12;

/** Joins neighbours that share a beginning, as long as that costs less than leaving them apart; rows of a group are neighbours. */
export function findFamilies(rows: readonly Row[], { maxSharing, maxTrained, pairCost }: BatchLimits): Family[] {
  const alone = (length: number) => length * (1 + length * pairCost);
  const together = (shared: number, own: number, longest: number) => alone(shared) + own * (1 + (shared + longest) * pairCost);
  const families: Family[] = [];
  for (let first = 0; first < rows.length;) {
    const members = [first];
    const head = rows[first]!;
    // The last token of a row predicts nothing and is never an input.
    let shared = inputsOf(head);
    let longestRow = shared;
    let cost = alone(shared);
    // Of all members, what they share counted for each.
    let inputs = shared;
    let trained = trainedTokens(head);
    for (let next = first + 1; next < rows.length; next++) {
      const row = rows[next]!;
      const length = inputsOf(row);
      const common = Math.min(shared, commonPrefix(head.tokens, row.tokens));
      const own = inputs + length - (members.length + 1) * common;
      const longest = Math.max(longestRow, length);
      const joined = together(common, own, longest - common);
      const more = trained + trainedTokens(row);
      if (common < MIN_SHARED || common + own > maxSharing || more > maxTrained || joined >= cost + alone(length)) break;
      shared = common;
      longestRow = longest;
      cost = joined;
      inputs += length;
      trained = more;
      members.push(next);
    }
    const prompt = members.length === 1 ? 0 : shared;
    const lengths = members.map((index) => inputsOf(rows[index]!) - prompt);
    const own = lengths.reduce((sum, length) => sum + length, 0);
    families.push({ members, shared: prompt, ...layOut(lengths, prompt, pairCost), length: prompt + own, trained });
    first += members.length;
  }
  return families;
}

/** Lays branches into lanes of the length that costs least: long ones hold more of them and waste less, but cost more attention. */
function layOut(lengths: readonly number[], shared: number, pairCost: number): Pick<Family, "branches" | "lanes" | "laneLength"> {
  const own = lengths.reduce((sum, length) => sum + length, 0);
  const longest = lengths.reduce((most, length) => Math.max(most, length), 0);
  let best = { cost: Infinity, lanes: 0, branches: [] as Branch[] };
  for (let size = paddedTime(longest); ; size = paddedTime(size * 1.5)) {
    const { lanes, branches } = firstFit(lengths, size);
    const cost = lanes * (size * (1 + (shared + size) * pairCost) + shared * COPY_COST);
    if (cost < best.cost) best = { cost, lanes, branches };
    if (size >= own) break;
  }
  const laneLength = best.branches.reduce((most, { start, length }) => Math.max(most, start + length), 0);
  return { branches: best.branches, lanes: best.lanes, laneLength };
}

/** The longest branches first, each into the first lane that has room for it. */
function firstFit(lengths: readonly number[], size: number): { lanes: number; branches: Branch[] } {
  const branches: Branch[] = new Array<Branch>(lengths.length);
  const filled: number[] = [];
  for (const index of lengths.map((_, i) => i).sort((a, b) => lengths[b]! - lengths[a]! || a - b)) {
    const length = lengths[index]!;
    // Nothing is laid out for a row that is all prompt.
    const found = length === 0 ? 0 : filled.findIndex((used) => used + length <= size);
    const lane = found < 0 ? filled.length : found;
    const start = filled[lane] ?? 0;
    if (length > 0) filled[lane] = start + length;
    branches[index] = { lane, start, length };
  }
  return { lanes: filled.length, branches };
}

/** Tokens that two rows have in common at the start, their last tokens left out. */
function commonPrefix(a: Int32Array, b: Int32Array): number {
  const limit = Math.min(a.length, b.length) - 1;
  let length = 0;
  while (length < limit && a[length] === b[length]) length++;
  return length;
}

function inputsOf({ tokens }: Row): number {
  return tokens.length - 1;
}

/** Tokens with a non-zero weight. */
export function trainedTokens(row: Row): number {
  let count = 0;
  for (let t = 1; t < row.weights.length; t++) if (row.weights[t] !== 0) count++;
  return count;
}

/**
 * Stages of a `Dataset`, whose methods document them. Each stage pulls one record (a trajectory) per request: none reads ahead, and none
 * stores more than its own state.
 */
import { uniform } from "../../base/util/rng.ts";
import type { Scalar, Trajectory } from "../../base/trajectory/index.ts";
import { digestOf, hashFraction, identityText, scalarText, type Identity } from "./keys.ts";

/** Input of a stage. */
type Records = AsyncIterable<Trajectory>;
/** Output of a stage. */
type Stage = AsyncGenerator<Trajectory, void, undefined>;

/** Domain of the random draws of `sample`; stages of different domains draw independent numbers from the same seed. */
const SAMPLE_DOMAIN = 1;
/** Domain of the random draws of `shuffle`. */
const SHUFFLE_DOMAIN = 2;
/** Exclusive upper bound of a counter of `uniform`. */
const COUNTER_LIMIT = 2 ** 32;

/** Yields the records for which `keep` returns true. */
export async function* filtered(records: Records, keep: (trajectory: Trajectory) => boolean | Promise<boolean>): Stage {
  for await (const record of records) if (await keep(record)) yield record;
}

/** Yields the results of `change`, which is called with each record and its index. */
export async function* mapped(records: Records, change: (trajectory: Trajectory, index: number) => Promise<Trajectory>): Stage {
  let index = 0;
  for await (const record of records) {
    yield await change(record, index);
    index++;
  }
}

/** Yields the first `count` records. */
export async function* taken(records: Records, count: number): Stage {
  if (count === 0) return;
  let remaining = count;
  for await (const record of records) {
    yield record;
    remaining--;
    // Stops before it requests the next record, which may require opening a file.
    if (remaining === 0) return;
  }
}

/** Yields each record with probability `fraction`, drawn from its index and the seed. */
export async function* sampled(records: Records, fraction: number, seed: bigint): Stage {
  let index = 0;
  for await (const record of records) {
    if (draw(seed, SAMPLE_DOMAIN, index) < fraction) yield record;
    index++;
  }
}

/**
 * Shuffles through a buffer: once it is full, each record takes the place of a random one, which is yielded. At the end, the remaining
 * records are yielded in random order.
 */
export async function* shuffled(records: Records, bufferSize: number, seed: bigint): Stage {
  const buffer: Trajectory[] = [];
  let draws = 0;
  const randomPosition = () => Math.floor(draw(seed, SHUFFLE_DOMAIN, draws++) * buffer.length);
  for await (const record of records) {
    if (buffer.length < bufferSize) {
      buffer.push(record);
      continue;
    }
    const position = randomPosition();
    const drawn = buffer[position] as Trajectory;
    buffer[position] = record;
    yield drawn;
  }
  while (buffer.length > 0) {
    const position = randomPosition();
    const drawn = buffer[position] as Trajectory;
    // The last record fills the gap.
    const last = buffer.pop() as Trajectory;
    if (position < buffer.length) buffer[position] = last;
    yield drawn;
  }
}

/** Yields the first record of each identity. */
export async function* deduped(records: Records, by: Identity): Stage {
  const seen = new Set<string>();
  for await (const record of records) {
    // The first 16 bytes of the SHA-256, one character per byte: the shortest string that identifies a trajectory.
    const digest = digestOf(identityText(record, by)).toString("latin1", 0, 16);
    if (seen.has(digest)) continue;
    seen.add(digest);
    yield record;
  }
}

/** Yields the first `max` records of each class; `by` returns the class of a record. */
export async function* balanced(records: Records, by: (trajectory: Trajectory) => Scalar | undefined, max: number): Stage {
  const counts = new Map<string, number>();
  for await (const record of records) {
    const key = scalarText(by(record));
    const count = counts.get(key) ?? 0;
    if (count === max) continue;
    counts.set(key, count + 1);
    yield record;
  }
}

/** Whether a record belongs to a fraction of all records; depends only on its identity and the seed. */
export function isInFraction(
  record: Trajectory,
  fraction: number,
  { by, seed }: { readonly by: Identity; readonly seed: bigint },
): boolean {
  return hashFraction("split", String(seed), identityText(record, by)) < fraction;
}

/** Returns a random number in (0, 1) for a record. @param index - Number of the draw in its stage, split into two counters. */
function draw(seed: bigint, domain: number, index: number): number {
  return uniform(seed, domain, index % COUNTER_LIMIT, Math.floor(index / COUNTER_LIMIT));
}

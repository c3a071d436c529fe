/** Stages of a dataset. Each stage pulls one record per request: none reads ahead, and none stores more than its own state. */
import { uniform } from "../../base/util/rng.ts";
import type { Scalar, Trajectory } from "../../base/trajectory/index.ts";
import { digestOf, identityText, scalarText, type Identity } from "./keys.ts";

type Records = AsyncIterable<Trajectory>;
type Stage = AsyncGenerator<Trajectory, void, undefined>;

/** Domains of the random draws, so that stages with the same seed draw independent numbers. */
const SAMPLE = 1;
const SHUFFLE = 2;
const WORD = 2 ** 32;

export async function* filtered(records: Records, keep: (trajectory: Trajectory) => boolean | Promise<boolean>): Stage {
  for await (const record of records) if (await keep(record)) yield record;
}

export async function* mapped(records: Records, change: (trajectory: Trajectory, index: number) => Promise<Trajectory>): Stage {
  let index = 0;
  for await (const record of records) yield await change(record, index++);
}

export async function* taken(records: Records, count: number): Stage {
  let left = count;
  if (left === 0) return;
  for await (const record of records) {
    yield record;
    // Stop before requesting the next record, which may require opening a file.
    if (--left === 0) return;
  }
}

export async function* sampled(records: Records, fraction: number, seed: bigint): Stage {
  let index = 0;
  for await (const record of records) {
    if (draw(seed, SAMPLE, index++) < fraction) yield record;
  }
}

/** Shuffles through a buffer: a record stays in it until a later record draws its position; the last records are drawn at the end. */
export async function* shuffled(records: Records, bufferSize: number, seed: bigint): Stage {
  const buffer: Trajectory[] = [];
  let index = 0;
  const place = () => Math.floor(draw(seed, SHUFFLE, index++) * buffer.length);
  for await (const record of records) {
    if (buffer.length < bufferSize) {
      buffer.push(record);
      continue;
    }
    const at = place();
    const drawn = buffer[at] as Trajectory;
    buffer[at] = record;
    yield drawn;
  }
  while (buffer.length > 0) {
    const at = place();
    const drawn = buffer[at] as Trajectory;
    const last = buffer.pop() as Trajectory;
    if (at < buffer.length) buffer[at] = last;
    yield drawn;
  }
}

export async function* deduped(records: Records, by: Identity): Stage {
  const seen = new Set<string>();
  for await (const record of records) {
    const digest = digestOf(identityText(record, by)).toString("latin1", 0, 16);
    if (seen.has(digest)) continue;
    seen.add(digest);
    yield record;
  }
}

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

/** Whether a record belongs to the fraction `share`; depends only on its identity and the seed. */
export function isInShare(record: Trajectory, share: number, { by, seed }: { readonly by: Identity; readonly seed: bigint }): boolean {
  const digest = digestOf("split", String(seed), identityText(record, by));
  return digest.readUIntBE(0, 6) / 2 ** 48 < share;
}

function draw(seed: bigint, domain: number, index: number): number {
  return uniform(seed, domain, index % WORD, Math.floor(index / WORD));
}

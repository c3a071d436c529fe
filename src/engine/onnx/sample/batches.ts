/** Batches of a sampler. */
import { getOrInsert } from "../../../base/util/values.ts";
import { SampleBatch, type RowListener } from "./batch.ts";
import type { SamplingPlace } from "./place.ts";
import type { PublishedPolicy } from "./policies.ts";
import type { Request } from "./request.ts";

/** Batches by the key of the weights that their rows share. An empty batch keeps its memory until it is dropped. */
export class Batches {
  readonly #batches = new Map<string, SampleBatch>();
  readonly #place: SamplingPlace;
  readonly #listener: RowListener;

  constructor(place: SamplingPlace, listener: RowListener) {
    this.#place = place;
    this.#listener = listener;
  }

  /** Number of running rows. */
  get size(): number {
    return [...this.#batches.values()].reduce((sum, batch) => sum + batch.size, 0);
  }

  /**
   * Returns the number of running rows that a waiting prompt of `client` is compared with: those that have sampled more than a few tokens,
   * or all if another client has rows.
   */
  settledRows(client: string): number {
    if (this.requests.some(({ group }) => group.client !== client)) return this.size;
    return this.running.reduce((sum, batch) => sum + batch.settledRows, 0);
  }

  /** Batches with running rows. */
  get running(): SampleBatch[] {
    return [...this.#batches.values()].filter((batch) => batch.size > 0);
  }

  /** Requests of the running rows. */
  get requests(): Request[] {
    return [...this.#batches.values()].flatMap((batch) => batch.requests);
  }

  [Symbol.iterator](): Iterator<[string, SampleBatch]> {
    return this.#batches[Symbol.iterator]();
  }

  /** Returns the batch of a policy. */
  of({ batchKey, weights }: Pick<PublishedPolicy, "batchKey" | "weights">): SampleBatch {
    return getOrInsert(this.#batches, batchKey, () => new SampleBatch(this.#place, weights, this.#listener));
  }

  /** Removes a batch and releases its memory. */
  drop(key: string): void {
    this.#batches.get(key)?.release();
    this.#batches.delete(key);
  }

  /** Removes the rows with requests for which `isEnded` is true. */
  remove(isEnded: (request: Request) => boolean): void {
    for (const batch of this.#batches.values()) batch.remove(isEnded);
  }
}

/** A cache that holds so many entries and so much weight; what was not asked for longest goes first. */
export class WeightedCache<V> {
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  // In the order of use, oldest first.
  readonly #entries = new Map<string, { readonly value: V; readonly weight: number }>();
  #weight = 0;

  /** @param limits - The weight is in whatever unit {@link set} is told. */
  constructor({ maxEntries, maxWeight }: { readonly maxEntries: number; readonly maxWeight: number }) {
    this.#maxEntries = maxEntries;
    this.#maxWeight = maxWeight;
  }

  /** The value of a key, which was used now; undefined where there is none. */
  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  /** Keeps a value, unless it is heavier than all may be together. */
  set(key: string, value: V, weight: number): void {
    this.#delete(key);
    if (weight > this.#maxWeight) return;
    this.#entries.set(key, { value, weight });
    this.#weight += weight;
    while (this.#entries.size > this.#maxEntries || this.#weight > this.#maxWeight) this.#delete(this.#entries.keys().next().value!);
  }

  #delete(key: string): void {
    this.#weight -= this.#entries.get(key)?.weight ?? 0;
    this.#entries.delete(key);
  }
}

/** An LRU cache limited in entries and total weight. */
export class WeightedCache<V> {
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  // Ordered by last use, least recently used first.
  readonly #entries = new Map<string, { readonly value: V; readonly weight: number }>();
  #weight = 0;

  /**
   * Creates an empty cache.
   *
   * @param limits - Max number of entries, and max total weight in the unit of {@link set}.
   */
  constructor({ maxEntries, maxWeight }: { readonly maxEntries: number; readonly maxWeight: number }) {
    this.#maxEntries = maxEntries;
    this.#maxWeight = maxWeight;
  }

  /** Returns the value of a key and marks it as most recently used; undefined if absent. */
  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  /** Caches a value unless its weight exceeds the max total weight, and evicts least recently used values. */
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

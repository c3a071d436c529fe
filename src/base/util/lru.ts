/** Caches with limits. */

/** Limits of an {@link Lru}. */
export interface LruLimits {
  /** Max number of entries. @default no limit */
  readonly maxEntries?: number;
  /** Max total weight, in the unit of {@link Lru.set}. @default no limit */
  readonly maxWeight?: number;
}

/** An LRU cache limited in entries and total weight. */
export class Lru<K, V> {
  readonly #maxEntries: number;
  readonly #maxWeight: number;
  /** Ordered by last use, least recently used first: a map iterates in insertion order, and a used entry is inserted again. */
  readonly #entries = new Map<K, { readonly value: V; readonly weight: number }>();
  #weight = 0;

  constructor({ maxEntries = Infinity, maxWeight = Infinity }: LruLimits = {}) {
    this.#maxEntries = maxEntries;
    this.#maxWeight = maxWeight;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Total weight of all values. */
  get weight(): number {
    return this.#weight;
  }

  /** Returns the value of a key and marks it as most recently used; undefined if absent. */
  get(key: K): V | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  /** Returns the value of a key without marking it as used; undefined if absent. */
  peek(key: K): V | undefined {
    return this.#entries.get(key)?.value;
  }

  /**
   * Caches a value unless its weight exceeds the max total weight, and evicts the least recently used values beyond the limits.
   *
   * @returns the evicted values.
   */
  set(key: K, value: V, weight = 0): V[] {
    this.delete(key);
    if (weight > this.#maxWeight) return [];
    this.#entries.set(key, { value, weight });
    this.#weight += weight;
    const evicted: V[] = [];
    for (const [oldest, entry] of this.#entries) {
      if (this.#entries.size <= this.#maxEntries && this.#weight <= this.#maxWeight) break;
      this.delete(oldest);
      evicted.push(entry.value);
    }
    return evicted;
  }

  delete(key: K): void {
    this.#weight -= this.#entries.get(key)?.weight ?? 0;
    this.#entries.delete(key);
  }

  /** Removes all entries. @returns their values. */
  clear(): V[] {
    const values = [...this.#entries.values()].map(({ value }) => value);
    this.#entries.clear();
    this.#weight = 0;
    return values;
  }
}

/**
 * Returns the value of `key`, computed on first use and shared by concurrent callers. A failure is not cached: the next caller tries again.
 */
export function remember<K, V>(cache: Lru<K, Promise<V>>, key: K, make: () => Promise<V>): Promise<V> {
  const known = cache.get(key);
  if (known !== undefined) return known;
  const value = make();
  void cache.set(key, value);
  value.catch(() => {
    if (cache.peek(key) === value) cache.delete(key);
  });
  return value;
}

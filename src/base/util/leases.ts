/** Counting of the users of shared resources, which are kept while they have users. */

import { abortable } from "./abort.ts";

/** Counter of the users that hold a key, such as the readers of a file. */
export class Holds<K> {
  readonly #counts = new Map<K, number>();

  /** Keys with at least one hold. */
  keys(): Iterable<K> {
    return this.#counts.keys();
  }

  /** Whether a key has at least one hold. */
  isHeld(key: K): boolean {
    return this.#counts.has(key);
  }

  /** Holds a key until the returned function is called. Further calls of that function have no effect. */
  hold(key: K): () => void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      const remainingHolds = this.#counts.get(key)! - 1;
      if (remainingHolds > 0) this.#counts.set(key, remainingHolds);
      else this.#counts.delete(key);
    };
  }
}

/** Lease of a shared value. */
export interface Lease<V> {
  readonly value: V;
  /** Ends the lease. Further calls have no effect. */
  readonly release: () => void;
}

/** Options of {@link Leases}. */
export interface LeasesOptions<K, V> {
  /** Max values without a lease that are kept. @default 0 */
  readonly maxIdle?: number;
  /** Called with each value that is no longer kept, after its last lease. @default no callback */
  readonly dispose?: (value: V, key: K) => void;
}

/** Value of a key with its leases. */
interface Entry<V> {
  /** Value, or its making in progress. */
  readonly made: Promise<V>;
  /** Result of `made`; undefined until it resolves. */
  value: V | undefined;
  /** Number of leases that are not released. */
  leases: number;
}

/**
 * Shared values by key, such as loaded models. A value is made at its first lease and shared by all later ones. Values with a lease are
 * kept; of the values without a lease, the `maxIdle` most recently leased. If making a value fails, the next lease tries again.
 */
export class Leases<K, V extends object> {
  readonly #maxIdle: number;
  readonly #dispose: (value: V, key: K) => void;
  /** Ordered by last lease, oldest first. */
  readonly #entries = new Map<K, Entry<V>>();

  constructor({ maxIdle = 0, dispose = () => {} }: LeasesOptions<K, V> = {}) {
    this.#maxIdle = maxIdle;
    this.#dispose = dispose;
  }

  /** Returns the value of a key without a lease; undefined if the value is absent or not made yet. */
  peek(key: K): V | undefined {
    return this.#entries.get(key)?.value;
  }

  /** Whether the value of a key has a lease that is not released. */
  isLeased(key: K): boolean {
    return (this.#entries.get(key)?.leases ?? 0) > 0;
  }

  /** Leases the value of `key`. The lease starts at the call, before the value is made. An abort ends only this caller's wait. */
  async lease(key: K, make: () => Promise<V>, signal?: AbortSignal): Promise<Lease<V>> {
    const entry = this.#entries.get(key) ?? this.#add(key, make());
    // Moves the entry to the end, as the most recently leased one.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    entry.leases++;
    let isHeld = true;
    const release = () => {
      if (!isHeld) return;
      isHeld = false;
      entry.leases--;
      if (this.#entries.get(key) === entry) this.#evict();
      // The key was forgotten during the lease.
      else if (entry.leases === 0) this.#discard(key, entry);
    };
    try {
      return { value: await abortable(entry.made, signal), release };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Keeps a value that is being made as if it had been leased and released. Disposes of the value if the key already has one. */
  adopt(key: K, made: Promise<V>): void {
    if (this.#entries.has(key)) this.#discard(key, { made, value: undefined });
    else this.#add(key, made);
    this.#evict();
  }

  /** Removes a key, so that its next lease makes a new value. The old value is disposed of after its last lease. */
  forget(key: K): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    if (entry.leases === 0) this.#discard(key, entry);
  }

  /** Adds an entry without leases. The entry is removed if making its value fails. */
  #add(key: K, made: Promise<V>): Entry<V> {
    const entry: Entry<V> = { made, value: undefined, leases: 0 };
    this.#entries.set(key, entry);
    made.then(
      (value) => {
        entry.value = value;
      },
      () => {
        if (this.#entries.get(key) === entry) this.#entries.delete(key);
      },
    );
    return entry;
  }

  /** Forgets values without a lease, the least recently leased first, until `maxIdle` of them are left. */
  #evict(): void {
    const idle = [...this.#entries].filter(([, { leases }]) => leases === 0);
    for (const [key] of idle.slice(0, Math.max(0, idle.length - this.#maxIdle))) this.forget(key);
  }

  /** Disposes of a value, once it is made. */
  #discard(key: K, { value, made }: Pick<Entry<V>, "made" | "value">): void {
    if (value !== undefined) this.#dispose(value, key);
    else
      made.then(
        (madeValue) => this.#dispose(madeValue, key),
        () => undefined,
      );
  }
}

/** A value, and how to let go of it. */
export interface Held<V> {
  readonly value: V;
  /** Calling it twice is harmless. */
  readonly letGo: () => void;
}

/**
 * Values that are made on first use, shared by everyone who holds them meanwhile, and forgotten with the last who lets go. A
 * failure is not remembered.
 */
export class SharedValues<K, V> {
  readonly #entries = new Map<K, { readonly made: Promise<V>; holders: number }>();

  /** Holds the value under `key`; whoever waits for it to be made holds it already. */
  async hold(key: K, make: () => Promise<V>): Promise<Held<V>> {
    const entry = this.#entries.get(key) ?? { made: make(), holders: 0 };
    this.#entries.set(key, entry);
    entry.holders++;
    let isHeld = true;
    const letGo = () => {
      if (isHeld && --entry.holders === 0) this.#entries.delete(key);
      isHeld = false;
    };
    try {
      return { value: await entry.made, letGo };
    } catch (error) {
      letGo();
      throw error;
    }
  }
}

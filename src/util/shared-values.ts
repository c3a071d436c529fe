/** A reference-counted value and its release function. */
export interface Held<V> {
  readonly value: V;
  /** Releases the value. Safe to call twice. */
  readonly letGo: () => void;
}

/**
 * A map of reference-counted values: a value is created on first use, shared by all concurrent holders, and removed when the last holder
 * releases it. A failure is not cached.
 */
export class SharedValues<K, V> {
  readonly #entries = new Map<K, { readonly made: Promise<V>; holders: number }>();

  /** Returns the value of `key` and holds it until released. The hold starts at the call, before the value is created. */
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

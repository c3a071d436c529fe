/** Where the beginnings of prompts were computed last. */

/** Beginnings are told apart at multiples of so many tokens; shorter ones are not worth going anywhere for. */
const STEP = 64;
const MAX_KNOWN = 8192;

/**
 * Remembers the home of each beginning of the prompts seen lately, by a hash of its tokens: that two beginnings look the
 * same costs time, and nothing else.
 */
export class PromptHomes<T> {
  // In the order of use, oldest first.
  readonly #homes = new Map<string, T>();

  /** The home of the longest known beginning of a prompt; null where there is none. */
  find(policyId: string, prompt: Int32Array): T | null {
    return keysOf(policyId, prompt).reduceRight<T | null>((found, key) => found ?? this.#homes.get(key) ?? null, null);
  }

  /** Makes `home` that of all beginnings of a prompt. */
  note(policyId: string, prompt: Int32Array, home: T): void {
    for (const key of keysOf(policyId, prompt)) {
      this.#homes.delete(key);
      this.#homes.set(key, home);
    }
    for (const key of this.#homes.keys()) {
      if (this.#homes.size <= MAX_KNOWN) break;
      this.#homes.delete(key);
    }
  }
}

/** A key per beginning, the shortest first. */
function keysOf(policyId: string, prompt: Int32Array): string[] {
  const keys: string[] = [];
  let [high, low] = [0x9747b28c, 0x811c9dc5];
  for (let at = 0; at + STEP <= prompt.length; at += STEP) {
    for (let t = at; t < at + STEP; t++) {
      low = Math.imul(low ^ prompt[t]!, 0x01000193);
      high = Math.imul(high ^ prompt[t]!, 0x5bd1e995);
    }
    keys.push(`${policyId} ${at} ${high} ${low}`);
  }
  return keys;
}

/** Prefix-affinity routing: a map from prompt prefixes to the sampler thread that computed them last. */

import { Lru } from "../../../base/util/lru.ts";

/** Granularity of prefixes, in tokens. A shorter prefix is too cheap to compute to influence the routing. */
const STEP = 64;
/** Maximum number of prefixes in the map. */
const MAX_KNOWN = 8192;

/**
 * Maps prefixes of recent prompts to the thread that computed them. Prefixes are identified by a hash of their tokens; a collision
 * only costs time.
 */
export class PrefixAffinity<T> {
  readonly #threads = new Lru<string, T>({ maxEntries: MAX_KNOWN });

  /**
   * Returns the thread of the longest known prefix of a prompt; null if no prefix is known.
   *
   * @param cache - Name of the prefix cache of a policy and a cache salt.
   */
  find(cache: string, prompt: Int32Array): T | null {
    const longestKnown = keysOf(cache, prompt).findLast((key) => this.#threads.peek(key) !== undefined);
    return longestKnown === undefined ? null : (this.#threads.peek(longestKnown) ?? null);
  }

  /** Records `thread` as the thread of all prefixes of a prompt. */
  record(cache: string, prompt: Int32Array, thread: T): void {
    for (const key of keysOf(cache, prompt)) this.#threads.set(key, thread);
  }
}

/** Returns one key per prefix, shortest prefix first. */
function keysOf(cache: string, prompt: Int32Array): string[] {
  const keys: string[] = [];
  // Two 32-bit hashes of the tokens so far: FNV-1a, and the same steps with other constants.
  let [high, low] = [0x9747b28c, 0x811c9dc5];
  for (let start = 0; start + STEP <= prompt.length; start += STEP) {
    for (let t = start; t < start + STEP; t++) {
      low = Math.imul(low ^ prompt[t]!, 0x01000193);
      high = Math.imul(high ^ prompt[t]!, 0x5bd1e995);
    }
    keys.push(`${cache} ${start} ${high} ${low}`);
  }
  return keys;
}

/**
 * Memory of sampled ids, so that a conversation that is sent back is tokenized as it was sampled rather than encoded again.
 *
 * A key is the digest of a whole rendered conversation up to the end of an assistant turn; the value is the ids of exactly that text. No
 * text is kept.
 */
import { createHash, type Hash } from "node:crypto";
import { Lru } from "../../../base/util/lru.ts";
import type { Principal } from "../../http/principal.ts";

/** Ids of a conversation up to and including an assistant turn. */
interface RememberedIds {
  readonly ids: Int32Array;
  /** Whether `ids` include the token that closes the turn; false for a turn cut short by the token limit or a stop string. */
  readonly isClosed: boolean;
}

/** Longest prefix of a text with known ids. */
export interface KnownPrefix {
  readonly ids: Int32Array;
  /** Number of UTF-16 units of the text that `ids` encode; the rest is still to be encoded. */
  readonly length: number;
}

/** Max ends of turns that are looked up in one text, the last ones; each costs a digest. */
const MAX_CANDIDATES = 1024;

/** Memory of an entry besides its ids: a digest, a map slot and an object. */
const ENTRY_OVERHEAD_BYTES = 160;

/** Returns the hash with which every digest of a scope begins. */
function hashOfScope(scope: string): Hash {
  // With the length, no other scope and text have the same bytes.
  return createHash("sha256").update(`${scope.length}:${scope}`);
}

/** Least-recently-used memory with a budget in bytes. Each principal has its own, so that no ids cross keys. */
export class SampledIds {
  readonly #entries: Lru<string, RememberedIds>;

  /** @param budgetBytes - Maximum size of all entries; the least recently used entries are dropped first. */
  constructor(budgetBytes: number) {
    this.#entries = new Lru({ maxWeight: budgetBytes });
  }

  /** Number of turns that are remembered. */
  get size(): number {
    return this.#entries.size;
  }

  /** Bytes in use. */
  get sizeBytes(): number {
    return this.#entries.weight;
  }

  /**
   * Records that `text` consists of `ids`.
   *
   * @param scope - Conversation and model, see `SplicePoint.scope`.
   * @param text - The conversation as the template renders it, up to and including the text of a token that ends a turn (terminator).
   * @param entry - `ids` of all of `text`, or with `isClosed` false, of `text` without the terminator. Taken, not copied.
   */
  remember(scope: string, text: string, entry: RememberedIds): void {
    const key = hashOfScope(scope).update(text).digest("base64");
    this.#entries.set(key, entry, entry.ids.byteLength + ENTRY_OVERHEAD_BYTES);
  }

  /**
   * Returns the longest remembered prefix of `text`; null if none is remembered.
   *
   * @param scope - As for {@link remember}.
   * @param text - The conversation as the template renders it.
   * @param terminators - Texts of the tokens that end a turn: every remembered text ends with one of them.
   */
  find(scope: string, text: string, terminators: readonly string[]): KnownPrefix | null {
    // One pass over the text serves all candidates: each digest continues the previous one.
    const hash = hashOfScope(scope);
    let hashedLength = 0;
    let longest: KnownPrefix | null = null;
    for (const { end, terminator } of turnEnds(text, terminators)) {
      hash.update(text.slice(hashedLength, end));
      hashedLength = end;
      const entry = this.#entries.get(hash.copy().digest("base64"));
      if (entry === undefined) continue;
      longest = { ids: entry.ids, length: entry.isClosed ? end : end - terminator.length };
    }
    return longest;
  }
}

/** Returns the last {@link MAX_CANDIDATES} ends of terminators in a text, in order. Earlier ones may be any text that spells a terminator. */
function turnEnds(text: string, terminators: readonly string[]): { readonly end: number; readonly terminator: string }[] {
  const ends: { readonly end: number; readonly terminator: string }[] = [];
  for (const terminator of terminators) {
    for (let start = text.indexOf(terminator); start !== -1; start = text.indexOf(terminator, start + terminator.length))
      ends.push({ end: start + terminator.length, terminator });
  }
  return ends.sort((a, b) => a.end - b.end).slice(-MAX_CANDIDATES);
}

/** Max memories at once. Of further principals, the memory that was used least recently is dropped. */
export const MAX_MEMORIES = 32;

/** Memories of the principals that sampled last; each is created at the first request of its principal. */
export class SampledIdsByPrincipal {
  readonly #memories = new Lru<string, SampledIds>({ maxEntries: MAX_MEMORIES });
  readonly #budgetBytes: number;

  /** @param budgetBytes - Size of each memory, in bytes. */
  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  /** Returns the memory of a principal. */
  of({ id }: Pick<Principal, "id">): SampledIds {
    const known = this.#memories.get(id);
    if (known !== undefined) return known;
    const created = new SampledIds(this.#budgetBytes);
    this.#memories.set(id, created);
    return created;
  }
}

/**
 * Remembers what was sampled, so that a conversation that comes back is tokenised as it was, not as an encoder would have it.
 *
 * A key is the digest of a whole rendered conversation up to the end of an assistant turn; the value is the ids of exactly
 * that text. No text is kept.
 */
import { createHash, type Hash } from "node:crypto";

/** Ids of a conversation up to and including an assistant turn. */
interface Remembered {
  readonly ids: Int32Array;
  /** Whether `ids` hold the token that closes the turn, or end before it (a turn cut by the limit or a stop string). */
  readonly isClosed: boolean;
}

/** The longest beginning of a text whose ids are known. */
export interface KnownPrefix {
  readonly ids: Int32Array;
  /** How many UTF-16 units of the text `ids` stand for; what follows is still to be encoded. */
  readonly length: number;
}

/** Ends of turns that are looked up in one text, the last ones; each costs a digest. */
const MAX_CANDIDATES = 1024;

/** Besides its ids an entry costs a digest, a map slot and an object. */
const ENTRY_OVERHEAD_BYTES = 160;

function start(scope: string): Hash {
  // The length keeps a scope from running into the text behind it.
  return createHash("sha256").update(`${scope.length}:${scope}`);
}

/** A least-recently-used memory with a byte budget. One per API key, so nothing crosses keys. */
export class SampledIds {
  readonly #entries = new Map<string, Remembered>();
  readonly #budgetBytes: number;
  #sizeBytes = 0;

  /** @param budgetBytes - What all entries together may cost; the least recently used go first. */
  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  /** How many turns are remembered. */
  get size(): number {
    return this.#entries.size;
  }

  /** Bytes in use. */
  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /**
   * Notes that `text` was made of `ids`.
   *
   * @param scope - The model, without its step.
   * @param text - The conversation as the template renders it, up to and including `terminator`.
   * @param entry - `ids` of all of `text`, or with `isClosed` false of all of it but the terminator. Taken, not copied.
   */
  remember(scope: string, text: string, entry: Remembered): void {
    const key = start(scope).update(text).digest("base64");
    this.#drop(key);
    this.#entries.set(key, entry);
    this.#sizeBytes += this.#cost(entry);
    for (const oldest of this.#entries.keys()) {
      if (this.#sizeBytes <= this.#budgetBytes) break;
      this.#drop(oldest);
    }
  }

  /**
   * The longest remembered beginning of `text`.
   *
   * @param terminators - Texts of the tokens that end a turn: every remembered text ends with one of them.
   */
  find(scope: string, text: string, terminators: readonly string[]): KnownPrefix | null {
    const ends: { readonly end: number; readonly terminator: string }[] = [];
    for (const terminator of terminators) {
      for (let at = text.indexOf(terminator); at !== -1; at = text.indexOf(terminator, at + terminator.length))
        ends.push({ end: at + terminator.length, terminator });
    }
    ends.sort((a, b) => a.end - b.end);
    // The first ones may be anything that spells a terminator; turns that end after them are found all the same.
    ends.splice(0, ends.length - MAX_CANDIDATES);
    // One pass over the text serves all candidates: each digest continues the one before it.
    const hash = start(scope);
    let hashed = 0;
    let found: KnownPrefix | null = null;
    for (const { end, terminator } of ends) {
      hash.update(text.slice(hashed, end));
      hashed = end;
      const key = hash.copy().digest("base64");
      const entry = this.#entries.get(key);
      if (entry === undefined) continue;
      this.#entries.delete(key);
      this.#entries.set(key, entry);
      found = { ids: entry.ids, length: entry.isClosed ? end : end - terminator.length };
    }
    return found;
  }

  #cost(entry: Remembered): number {
    return entry.ids.byteLength + ENTRY_OVERHEAD_BYTES;
  }

  #drop(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.#sizeBytes -= this.#cost(entry);
  }
}

/** The memories of all API keys; each is made at the first request with its key. */
export class SampledIdsByKey {
  readonly #memories = new Map<string, SampledIds>();
  readonly #budgetBytes: number;

  /** @param budgetBytes - The budget of each key's memory. */
  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  /** @param credential - What authenticated the request; only its digest is kept. */
  of(credential: string): SampledIds {
    const digest = createHash("sha256").update(credential).digest("base64");
    let memory = this.#memories.get(digest);
    if (memory === undefined) this.#memories.set(digest, (memory = new SampledIds(this.#budgetBytes)));
    return memory;
  }
}

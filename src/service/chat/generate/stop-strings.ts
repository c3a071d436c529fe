/** Result of adding a piece of text. */
export interface StopResult {
  /** Text that can be shown. */
  readonly text: string;
  /** Stop string that was completed, or null. No result follows a match. */
  readonly matched: string | null;
}

/** Returns the index of the UTF-16 unit at which the last `count` characters (code points) of `text` begin. */
function startOfLast(text: string, count: number): number {
  let index = text.length;
  for (let taken = 0; taken < count && index > 0; taken++) {
    const low = text.charCodeAt(index - 1);
    const high = index > 1 ? text.charCodeAt(index - 2) : 0;
    index -= low >= 0xdc00 && low <= 0xdfff && high >= 0xd800 && high <= 0xdbff ? 2 : 1;
  }
  return index;
}

/** Number of characters of a list's longest string, minus one, by list: the choices of a request share their list. */
const heldByList = new WeakMap<readonly string[], number>();

/** Returns the number of characters to hold back: one fewer than the longest stop string has. */
function heldCharacters(stops: readonly string[]): number {
  let maxHeld = heldByList.get(stops);
  if (maxHeld === undefined) {
    maxHeld = 0;
    for (const stop of stops) {
      let characters = 0;
      for (const _ of stop) characters++;
      maxHeld = Math.max(maxHeld, characters - 1);
    }
    heldByList.set(stops, maxHeld);
  }
  return maxHeld;
}

/** Options of {@link StopStrings}. */
export interface StopStringsOptions {
  /** Whether the text ends with the stop string instead of before it; no text is held back then. @default false */
  readonly isIncluded?: boolean | undefined;
}

/**
 * Incremental search for stop strings in text that arrives in pieces. The last characters, one fewer than the longest stop string has, are
 * held back, so that no beginning of a stop string is ever shown. If several stop strings are completed in one piece, the first in the list
 * wins, not the first in the text.
 *
 * @example
 * ```ts
 * const stops = new StopStrings(["END"]);
 * stops.push("to the E"); // { text: "to the", matched: null }
 * stops.push("ND of"); // { text: " ", matched: "END" }
 * ```
 */
export class StopStrings {
  readonly #stops: readonly string[];
  readonly #heldCharacters: number;
  readonly #isIncluded: boolean;
  /** Last characters of the text; already shown if stop strings are included. */
  #held = "";

  /** @param stops - Non-empty strings. */
  constructor(stops: readonly string[], options: StopStringsOptions = {}) {
    this.#stops = stops;
    this.#isIncluded = options.isIncluded ?? false;
    this.#heldCharacters = heldCharacters(stops);
  }

  /** Adds the next piece. */
  push(piece: string): StopResult {
    if (piece === "") return { text: "", matched: null };
    const text = this.#held + piece;
    const shown = this.#isIncluded ? this.#held.length : 0;
    for (const stop of this.#stops) {
      // A stop string that is completed in this piece begins at most its length before the piece: older text need not be searched.
      const at = text.indexOf(stop, this.#held.length - stop.length + 1);
      if (at === -1) continue;
      this.#held = "";
      return { text: text.slice(shown, this.#isIncluded ? at + stop.length : at), matched: stop };
    }
    const end = startOfLast(text, this.#heldCharacters);
    this.#held = text.slice(end);
    return { text: this.#isIncluded ? piece : text.slice(0, end), matched: null };
  }

  /** Returns the text that is still held back, at the end of the stream. */
  flush(): string {
    const rest = this.#isIncluded ? "" : this.#held;
    this.#held = "";
    return rest;
  }
}

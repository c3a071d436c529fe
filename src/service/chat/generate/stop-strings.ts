/** Search for stop strings in the text of a choice, which arrives in pieces. */
import { getOrInsert } from "../../../base/util/values.ts";

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
    // A code point above U+FFFF has two units, a surrogate pair.
    const isPair = index > 1 && (text.codePointAt(index - 2) ?? 0) > 0xffff;
    index -= isPair ? 2 : 1;
  }
  return index;
}

/** Results of {@link heldCharacters}: the choices of a request share their list. */
const heldCharactersByList = new WeakMap<readonly string[], number>();

/** Returns the number of characters to hold back: one fewer than the longest stop string has. */
function heldCharacters(stops: readonly string[]): number {
  return getOrInsert(heldCharactersByList, stops, () => {
    let maxCharacters = 0;
    for (const stop of stops) {
      let characters = 0;
      for (const _ of stop) characters++;
      maxCharacters = Math.max(maxCharacters, characters);
    }
    return Math.max(maxCharacters - 1, 0);
  });
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
  #heldText = "";

  /** @param stops - Non-empty strings. */
  constructor(stops: readonly string[], options: StopStringsOptions = {}) {
    this.#stops = stops;
    this.#isIncluded = options.isIncluded ?? false;
    this.#heldCharacters = heldCharacters(stops);
  }

  /** Adds the next piece. */
  push(piece: string): StopResult {
    if (piece === "") return { text: "", matched: null };
    const text = this.#heldText + piece;
    const shownLength = this.#isIncluded ? this.#heldText.length : 0;
    for (const stop of this.#stops) {
      // A stop string that is completed in this piece begins less than its length before the piece: older text need not be searched.
      const start = text.indexOf(stop, this.#heldText.length - stop.length + 1);
      if (start === -1) continue;
      this.#heldText = "";
      return { text: text.slice(shownLength, this.#isIncluded ? start + stop.length : start), matched: stop };
    }
    const heldStart = startOfLast(text, this.#heldCharacters);
    this.#heldText = text.slice(heldStart);
    return { text: this.#isIncluded ? piece : text.slice(0, heldStart), matched: null };
  }

  /** Returns the text that is still held back, at the end of the stream. */
  flush(): string {
    const text = this.#isIncluded ? "" : this.#heldText;
    this.#heldText = "";
    return text;
  }
}

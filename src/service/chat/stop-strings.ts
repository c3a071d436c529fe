/** What became of a piece of text. */
export interface StopResult {
  /** Text that can be shown. */
  readonly text: string;
  /** The stop string that completed, or null. Nothing follows after one. */
  readonly matched: string | null;
}

/** Index of the unit at which the last `count` characters (code points) of `text` begin. */
function startOfLast(text: string, count: number): number {
  let index = text.length;
  for (let taken = 0; taken < count && index > 0; taken++) {
    const low = text.charCodeAt(index - 1);
    const high = index > 1 ? text.charCodeAt(index - 2) : 0;
    index -= low >= 0xdc00 && low <= 0xdfff && high >= 0xd800 && high <= 0xdbff ? 2 : 1;
  }
  return index;
}

/** By list, how many characters its longest string has, less one: the choices of a request share their list. */
const held = new WeakMap<readonly string[], number>();

function heldCharacters(stops: readonly string[]): number {
  let most = held.get(stops);
  if (most === undefined) {
    most = 0;
    for (const stop of stops) {
      let characters = 0;
      for (const _ of stop) characters++;
      most = Math.max(most, characters - 1);
    }
    held.set(stops, most);
  }
  return most;
}

/** Options of {@link StopStrings}. */
export interface StopStringsOptions {
  /** Whether the text ends with the stop string instead of before it; nothing is held back then. @default false */
  readonly isIncluded?: boolean | undefined;
}

/**
 * Looks for stop strings in text that comes in pieces. As many characters as the longest stop string has, less one, are held
 * back, so that no beginning of a stop string is ever shown. Of several that complete in one piece the first in the list wins,
 * not the first in the text.
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
  /** The last characters of the text; shown already where stop strings are included. */
  #held = "";

  /** @param stops - Non-empty strings. */
  constructor(stops: readonly string[], options: StopStringsOptions = {}) {
    this.#stops = stops;
    this.#isIncluded = options.isIncluded ?? false;
    this.#heldCharacters = heldCharacters(stops);
  }

  /** Takes the next piece. */
  push(piece: string): StopResult {
    if (piece === "") return { text: "", matched: null };
    const text = this.#held + piece;
    const shown = this.#isIncluded ? this.#held.length : 0;
    for (const stop of this.#stops) {
      // A stop string that completes in this piece begins at most its length before the piece: nothing older need be searched.
      const at = text.indexOf(stop, this.#held.length - stop.length + 1);
      if (at === -1) continue;
      this.#held = "";
      return { text: text.slice(shown, this.#isIncluded ? at + stop.length : at), matched: stop };
    }
    const end = startOfLast(text, this.#heldCharacters);
    this.#held = text.slice(end);
    return { text: this.#isIncluded ? piece : text.slice(0, end), matched: null };
  }

  /** What is still held back, at the end of the text. */
  flush(): string {
    const rest = this.#isIncluded ? "" : this.#held;
    this.#held = "";
    return rest;
  }
}

/**
 * Limits of one rendering. They count steps, not time, so that the same template and input always stop at the same place. A function that
 * does more than a constant amount of work charges the meter before it starts.
 */

import { TemplateLimitReached } from "./errors.ts";

/** Number of characters that the slowest linear pass, a search without a match, reads in about the time of one step. */
const CHARACTERS_PER_STEP = 32;
/** Number of characters that are copied in about the time of one step. */
const COPIED_PER_STEP = 256;
/** Number of UTF-16 units that are split into code points in about the time of one step. */
const SPLIT_PER_STEP = 8;
/** Max length of a pattern that is searched for at the cost of one linear pass; a longer one costs in proportion to its length. */
const SHORT_PATTERN_LENGTH = 16;

/** Max nesting of macro calls and recursive loops. */
const MAX_DEPTH = 150;

/** Limits of one rendering. */
export interface MeterLimits {
  /** Max steps. A step is a statement, a loop iteration, a call, a created list element, or 32 characters of text to search. */
  readonly maxSteps: number;
  /** Max length of every text that the template makes, in UTF-16 units. */
  readonly maxTextLength: number;
}

/** Counts the steps of one rendering, and throws when it exceeds a limit. */
export class Meter {
  readonly #limits: MeterLimits;
  #steps = 0;
  #depth = 0;

  constructor(limits: MeterLimits) {
    this.#limits = limits;
  }

  /**
   * Adds steps, which may be a fraction.
   *
   * @throws TemplateLimitReached when the rendering exceeds its number of steps.
   */
  charge(steps: number): void {
    this.#steps += steps;
    if (this.#steps > this.#limits.maxSteps) {
      throw new TemplateLimitReached(`it did more than ${this.#limits.maxSteps} steps`);
    }
  }

  /** Charges a linear pass over a text of `length` characters. */
  chargeText(length: number): void {
    this.charge(length / CHARACTERS_PER_STEP);
  }

  /** Charges a search for a pattern in a text. Its worst case takes the product of both lengths. */
  chargeSearch(textLength: number, patternLength: number): void {
    this.charge((textLength * Math.max(1, patternLength / SHORT_PATTERN_LENGTH)) / CHARACTERS_PER_STEP);
  }

  /** Charges a copy of `length` characters. */
  chargeCopy(length: number): void {
    this.charge(length / COPIED_PER_STEP);
  }

  /** Charges the split of `length` UTF-16 units into code points. */
  chargeSplit(length: number): void {
    this.charge(length / SPLIT_PER_STEP);
  }

  /**
   * Checks the length of a text before it is made.
   *
   * @throws TemplateLimitReached when a text of `length` characters is too long.
   */
  checkLength(length: number): void {
    if (length > this.#limits.maxTextLength) {
      throw new TemplateLimitReached(`it made a text of more than ${this.#limits.maxTextLength} characters`);
    }
  }

  /**
   * Joins the texts that `textOf` returns for the items.
   *
   * @throws TemplateLimitReached as soon as they are too long together, before the text is made.
   */
  join<T>(items: readonly T[], separator: string, textOf: (item: T) => string): string {
    let length = 0;
    const parts = items.map((item, at) => {
      const part = textOf(item);
      length += part.length + (at === 0 ? 0 : separator.length);
      this.checkLength(length);
      return part;
    });
    return parts.join(separator);
  }

  /** Checks the length of the text that an operation returns, charges its copy, and returns it. */
  chargeResult(text: string): string {
    this.checkLength(text.length);
    this.chargeCopy(text.length);
    return text;
  }

  /**
   * Runs a macro or a recursive loop one level deeper.
   *
   * @throws TemplateLimitReached when calls nest too deeply.
   */
  runNested<T>(run: () => T): T {
    if (this.#depth >= MAX_DEPTH) throw new TemplateLimitReached(`its macros and recursive loops nest more than ${MAX_DEPTH} deep`);
    this.#depth++;
    try {
      return run();
    } finally {
      this.#depth--;
    }
  }
}

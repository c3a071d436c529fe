/** Comparison of configurations by the texts that follow them. */
import type { Configuration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";

/** Max pairs of configurations that one comparison visits. The rest of an escape sequence has about 10. */
const MAX_PAIRS = 32;

/** Comparisons of the configurations of one grammar. */
export class Equivalence {
  readonly #configurations: Configurations;
  /** Results of {@link isCertain} by both configurations. */
  readonly #results = new Map<Configuration, Map<Configuration, boolean>>();

  constructor(configurations: Configurations) {
    this.#configurations = configurations;
  }

  /**
   * Whether few steps show that the same texts follow two configurations: equal bytes lead to the same configurations, such as inside of a
   * character of several bytes, which the states of two rules encode. False if the texts differ or more steps are necessary.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar has too many states at once.
   */
  isCertain(a: Configuration, b: Configuration): boolean {
    const known = this.#results.get(a)?.get(b);
    if (known !== undefined) return known;
    const result = this.#compare(a, b);
    const ofA = this.#results.get(a);
    if (ofA === undefined) this.#results.set(a, new Map([[b, result]]));
    else ofA.set(b, result);
    return result;
  }

  #compare(a: Configuration, b: Configuration): boolean {
    const pairs: [Configuration, Configuration][] = [[a, b]];
    // The loop reaches pairs that are added meanwhile.
    for (const [left, right] of pairs) {
      if (left.canEnd !== right.canEnd || (left.points.length === 0) !== (right.points.length === 0)) return false;
      const [ofLeft, ofRight] = [this.#configurations.successors(left), this.#configurations.successors(right)];
      if (ofLeft.length !== ofRight.length) return false;
      for (const [at, { first, last, next }] of ofLeft.entries()) {
        const other = ofRight[at]!;
        if (first !== other.first || last !== other.last) return false;
        if (next !== other.next && pairs.push([next, other.next]) > MAX_PAIRS) return false;
      }
    }
    return true;
  }
}

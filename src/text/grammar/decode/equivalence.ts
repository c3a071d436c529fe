/** Comparison of configurations by the texts that follow them. */
import type { Configuration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import { getOrInsert } from "../../../base/util/values.ts";

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
    // Called for each node in which two configurations differ.
    const known = this.#results.get(a)?.get(b);
    if (known !== undefined) return known;
    const resultsOfFirst = getOrInsert(this.#results, a, () => new Map<Configuration, boolean>());
    return getOrInsert(resultsOfFirst, b, () => this.#compare(a, b));
  }

  /** Does the same as {@link isCertain} without the known results. */
  #compare(a: Configuration, b: Configuration): boolean {
    const pairs: [Configuration, Configuration][] = [[a, b]];
    // The loop reaches pairs that are added meanwhile.
    for (const [left, right] of pairs) {
      if (left.canEnd !== right.canEnd || (left.points.length === 0) !== (right.points.length === 0)) return false;
      const leftSuccessors = this.#configurations.successors(left);
      const rightSuccessors = this.#configurations.successors(right);
      if (leftSuccessors.length !== rightSuccessors.length) return false;
      for (const [at, { first, last, next }] of leftSuccessors.entries()) {
        const other = rightSuccessors[at]!;
        if (first !== other.first || last !== other.last) return false;
        if (next === other.next) continue;
        pairs.push([next, other.next]);
        if (pairs.length > MAX_PAIRS) return false;
      }
    }
    return true;
  }
}

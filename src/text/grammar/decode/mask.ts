/**
 * Token masks: the tokens that may follow a configuration of a grammar.
 *
 * A token ends inside of the innermost call of a point, or beyond the end of that call. Tokens of the first kind depend on the state and not
 * on the stack, so they are computed once for a string, a number or any other rule that a grammar calls at many places. The others begin
 * with a text that ends the call; only the rest of their bytes is walked for each stack.
 *
 * @source Y. Dong et al., "XGrammar: Flexible and Efficient Structured Generation Engine for Large Language Models", 2024, for tokens that do
 *   not depend on the stack.
 */
import type { Configuration } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import { InnerTokenSearch } from "./inner-tokens.ts";
import { countTokens } from "./token-count.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { Walk } from "./walk.ts";

/** Max states that the computation of one mask may visit; this takes about a second. */
const MAX_WORK = 500_000;

/** Tokens that may follow. */
export interface TokenMask {
  /** A bit for each token: bit `id & 31` of word `id >>> 5`. */
  readonly words: Uint32Array;
  /** Whether most tokens may follow. */
  readonly isDense: boolean;
}

/** Computes the mask of a configuration. One with very many stacks, as of an ambiguous grammar, is walked as a whole. */
function computeMask(configuration: Configuration, configurations: Configurations, vocabulary: Vocabulary): Uint32Array {
  const maxWork = configurations.work + MAX_WORK;
  const walk = new Walk(configurations, vocabulary, maxWork, "whole");
  const calls = new InnerTokenSearch(configurations, vocabulary, maxWork).innermostCalls(configuration);
  if (calls === null) walk.addAll(configuration);
  else for (const [caller, inner] of calls) walk.addCall(caller, inner);
  return walk.mask;
}

/**
 * Returns the tokens that may follow a configuration. Computed once per configuration; the result must not be modified.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
 */
export function maskOf({ relaxed }: Configuration, configurations: Configurations, vocabulary: Vocabulary): TokenMask {
  if (relaxed.mask === undefined) {
    const words = computeMask(relaxed, configurations, vocabulary);
    relaxed.mask = { words, isDense: 2 * countTokens(words) > vocabulary.size };
  }
  return relaxed.mask;
}

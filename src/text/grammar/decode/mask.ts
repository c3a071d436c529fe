/** Token masks: the tokens that may follow a configuration of a grammar. */
import { tooAmbiguous, type Configuration, type Configurations } from "./configurations.ts";
import type { TokenTree, Vocabulary } from "./vocabulary.ts";

/**
 * Min number of byte values that must lead from a configuration back to itself for {@link maskOf} to look up the tokens made of such bytes
 * instead of walking them.
 */
const MIN_LOOP_BYTES = 32;

/** Max states that the computation of one mask may visit; this takes about a second. */
const MAX_WORK = 500_000;

/** Walks a tree and sets the bit of each token that may follow a configuration. Skips the subtree of a byte that cannot follow. */
function walk(tree: TokenTree, from: Configuration, configurations: Configurations, mask: Uint32Array): void {
  const { bytes, depths, ends, firstIds, ids } = tree;
  /** Configuration before the byte at each depth of the current node. */
  const path: Configuration[] = [from];
  const limit = configurations.work + MAX_WORK;
  for (let node = 0; node < bytes.length;) {
    const depth = depths[node]!;
    const next = configurations.step(path[depth]!, bytes[node]!);
    if (next === null) {
      node = ends[node]!;
      continue;
    }
    for (let at = firstIds[node]!; at < firstIds[node + 1]!; at++) {
      const id = ids[at]!;
      mask[id >>> 5]! |= 1 << (id & 31);
    }
    if (configurations.work > limit) throw tooAmbiguous();
    path[depth + 1] = next;
    node++;
  }
}

/**
 * Returns the tokens that may follow a configuration, as one bit each: bit `id & 31` of word `id >>> 5`. Computed once per configuration;
 * the result must not be modified.
 *
 * Inside of a JSON string, nearly every byte leads back to the same configuration. All tokens made of such bytes alone may follow. The
 * vocabulary caches them by the set of bytes, which is the same for the strings of all grammars, so that only the other tokens are walked.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
 */
export function maskOf(configuration: Configuration, configurations: Configurations, vocabulary: Vocabulary): Uint32Array {
  const { relaxed } = configuration;
  if (relaxed.mask !== undefined) return relaxed.mask;
  const staysAt = Array.from({ length: 256 }, (_, byte) => configurations.step(relaxed, byte) === relaxed);
  let tree = vocabulary.tree;
  let mask = vocabulary.emptyMask();
  if (staysAt.filter(Boolean).length >= MIN_LOOP_BYTES) {
    const split = vocabulary.split(staysAt);
    tree = split.beyond;
    mask = split.within.slice();
  }
  walk(tree, relaxed, configurations, mask);
  return (relaxed.mask = mask);
}

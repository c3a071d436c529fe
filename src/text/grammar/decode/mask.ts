/** Token masks: the tokens that may follow a configuration of a grammar. */
import { tooAmbiguous, type Configuration, type Configurations } from "./configurations.ts";
import type { TokenTree, Vocabulary } from "./vocabulary.ts";

/**
 * Min number of bytes that lead from a configuration back to itself. With at least as many, tokens made of such bytes are looked up instead
 * of walked.
 */
const MANY_BYTES = 32;

/** Max states that one mask may visit; as many take about a second. */
const MAX_WORK = 500_000;

/** Sets the bit of each token of a tree that may follow a configuration; skips the subtree of a byte that cannot follow. */
function walk(tree: TokenTree, from: Configuration, configurations: Configurations, mask: Uint32Array): void {
  const { bytes, depths, ends, firstIds, ids } = tree;
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
 * Returns the tokens that may follow, as one bit each; computed once per configuration. The result must not be modified.
 *
 * Inside a string nearly every byte leads back to the same configuration. The tokens made of such bytes alone are the same for every string
 * of every grammar, so that only the other tokens are walked.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
 */
export function maskOf(configuration: Configuration, configurations: Configurations, vocabulary: Vocabulary): Uint32Array {
  const { relaxed } = configuration;
  if (relaxed.mask !== undefined) return relaxed.mask;
  const isWithin = Array.from({ length: 256 }, (_, byte) => configurations.step(relaxed, byte) === relaxed);
  let tree = vocabulary.tree;
  let mask = vocabulary.emptyMask();
  if (isWithin.filter(Boolean).length >= MANY_BYTES) {
    const split = vocabulary.split(isWithin);
    tree = split.beyond;
    mask = split.within.slice();
  }
  walk(tree, relaxed, configurations, mask);
  return (relaxed.mask = mask);
}

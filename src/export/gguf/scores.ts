/** Scores of tokens in the style of SentencePiece, from the merges of a BPE tokenizer. */
import { UnsupportedError } from "../../base/errors.ts";
import type { TokenizerFile } from "../../text/tokenizer/files.ts";

/**
 * Returns a score per token, by which SentencePiece merges in the order of the file: minus the rank of the token among the merged tokens, 0
 * for tokens that no merge makes.
 *
 * SentencePiece merges any two neighbors that together are a token, the highest score first. Scores can therefore express the merges only
 * if they contain every way to divide a merged token into two tokens, and if all merges of a token follow each other.
 *
 * @param tokens - Texts of all tokens by id.
 * @throws UnsupportedError `E_UNSUPPORTED` for merges that are not in the style of SentencePiece.
 */
export function mergeScores({ model: { vocab, merges } }: TokenizerFile, tokens: readonly string[]): number[] {
  /** Rank of each merged token, from 1. */
  const ranks = new Map<string, number>();
  const pairs = new Set<string>();
  let previousToken = "";
  for (const merge of merges) {
    const [left = "", right = ""] = typeof merge === "string" ? merge.split(" ", 2) : merge;
    const token = left + right;
    if (token !== previousToken) {
      if (ranks.has(token)) refuse(`merges of ${JSON.stringify(token)} that do not follow each other`);
      ranks.set(token, ranks.size + 1);
    }
    pairs.add(`${left} ${right}`);
    previousToken = token;
  }
  for (const text of ranks.keys()) {
    const characters = [...text];
    for (let cut = 1; cut < characters.length; cut++) {
      const [left, right] = [characters.slice(0, cut).join(""), characters.slice(cut).join("")];
      if (Object.hasOwn(vocab, left) && Object.hasOwn(vocab, right) && !pairs.has(`${left} ${right}`))
        refuse(`no merge of ${JSON.stringify(left)} and ${JSON.stringify(right)}`);
    }
  }
  // `0 - 0` is 0; `-0` would be written with another sign bit.
  return tokens.map((text) => 0 - (ranks.get(text) ?? 0));
}

/** @throws UnsupportedError `E_UNSUPPORTED` that names the merges. */
function refuse(found: string): never {
  throw new UnsupportedError(
    `tokenizer.json: expected merges in the style of SentencePiece for GGUF, got ${found}; export another format`,
    { param: "format" },
  );
}

/** Conversion of the scores of a SentencePiece vocabulary to the merges of a BPE tokenizer that splits texts alike. */
import { TOKEN_TYPES, type GgufVocabulary } from "./vocabulary.ts";
import { itemAt } from "../util/values.ts";

/** Merge of two tokens, and the score of the token that it makes. */
interface ScoredMerge {
  readonly pair: readonly [string, string];
  readonly score: number;
}

/**
 * Returns the merges in order: for every token, each way to divide it into two tokens, by descending score of the token, then by descending
 * length of the parts, then by ids.
 *
 * @param scores - Score of each token.
 * @source transformers, `generate_merges` in `tokenization_utils_tokenizers.py`.
 */
export function mergesFromScores({ texts, types, ids }: GgufVocabulary, scores: readonly number[]): (readonly [string, string])[] {
  /** Whether an id is a token that merges may make or use: not a control, byte or unknown token. */
  const isPiece = (id: number | undefined): id is number =>
    id !== undefined && (types[id] === TOKEN_TYPES.normal || types[id] === TOKEN_TYPES.userDefined || types[id] === TOKEN_TYPES.unused);
  const merges: ScoredMerge[] = [];
  for (const [id, text] of texts.entries()) {
    if (!isPiece(id)) continue;
    const splits: { readonly left: number; readonly right: number }[] = [];
    for (let cut = 1; cut < text.length; cut++) {
      const [left, right] = [ids.get(text.slice(0, cut)), ids.get(text.slice(cut))];
      if (isPiece(left) && isPiece(right)) splits.push({ left, right });
    }
    splits.sort((a, b) => a.left - b.left || a.right - b.right);
    for (const { left, right } of splits) merges.push({ pair: [itemAt(texts, left), itemAt(texts, right)], score: itemAt(scores, id) });
  }
  return merges
    .sort((a, b) => b.score - a.score || b.pair[0].length - a.pair[0].length || b.pair[1].length - a.pair[1].length)
    .map(({ pair }) => pair);
}

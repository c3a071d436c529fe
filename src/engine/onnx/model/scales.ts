/** Constant factors of a transformer. */
import type { Raw } from "./layer-windows.ts";
import { positive } from "./rope-settings.ts";

/** Constant factors; 1, except for the attention scores, which have `1/√d`, unless the architecture has others. */
export interface Scales {
  /** Factor of the embeddings. */
  readonly embedding: number;
  /** Factor of the attention scores. */
  readonly attention: number;
  /** Factor of the outputs of attention and feed-forward layers, before they are added to their inputs. */
  readonly residual: number;
  /** Factor of the logits. */
  readonly logits: number;
}

/**
 * Rule for the factors: the usual ones; the four multipliers of the file (`granite`); or `√H` for embeddings and `1/√query_pre_attn_scalar`
 * for attention scores (`gemma`).
 */
export type ScaleRule = "usual" | "granite" | "gemma";

/**
 * Parses the factors of a `config.json`.
 *
 * @param where - Name of the file for error messages.
 * @throws DataError `E_DATA` for a factor that is not a number > 0.
 */
export function parseScales(
  raw: Raw,
  where: string,
  rule: ScaleRule,
  { hiddenSize, headSize }: { readonly hiddenSize: number; readonly headSize: number },
): Scales {
  const number = (key: string, fallback: number) => positive(raw[key] ?? fallback, `${where}: expected "${key}"`);
  const usual: Scales = { embedding: 1, attention: 1 / Math.sqrt(headSize), residual: 1, logits: 1 };
  switch (rule) {
    case "usual":
      return usual;
    case "granite":
      return {
        embedding: number("embedding_multiplier", 1),
        attention: number("attention_multiplier", 1),
        residual: number("residual_multiplier", 1),
        logits: 1 / number("logits_scaling", 1),
      };
    case "gemma":
      return { ...usual, embedding: Math.sqrt(hiddenSize), attention: 1 / Math.sqrt(number("query_pre_attn_scalar", 256)) };
  }
}

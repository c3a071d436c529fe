/** Pre-tokenizers that llama.cpp knows, by their form in `tokenizer.json`. */
import { UnsupportedError } from "../../base/errors.ts";
import { GPT_2, PRE_TOKENIZERS } from "../../base/gguf/pre-tokenizers.ts";
import type { Component, TokenizerFile } from "../../text/tokenizer/files.ts";

/**
 * Returns llama.cpp's identifier of a byte-level tokenizer's pre-tokenizer.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a pre-tokenizer that llama.cpp does not have; the message has its patterns.
 */
export function preTokenizerOf({ pre_tokenizer: preTokenizer, model }: TokenizerFile): string {
  const patterns = preTokenizer === null ? null : patternsOf(preTokenizer);
  const ignoresMerges = model["ignore_merges"] === true;
  const match = PRE_TOKENIZERS.find(
    (known) => patterns !== null && known.patterns.join("\n") === patterns.join("\n") && known.ignoresMerges === ignoresMerges,
  );
  if (match !== undefined) return match.id;
  const description = patterns === null ? JSON.stringify(preTokenizer) : patterns.map((pattern) => `\`${pattern}\``).join(", then ");
  throw new UnsupportedError(
    `tokenizer.json: llama.cpp has no pre-tokenizer that splits text by ${description.slice(0, 1000)}${ignoresMerges ? " with `ignore_merges`" : ""}. ` +
      "Name one that splits your texts alike with the option `preTokenizer` (--pre-tokenizer), for example tekken, or export without a tokenizer (--no-tokenizer) for programs that pass token ids",
    { param: "preTokenizer" },
  );
}

/** Returns the patterns of a pre-tokenizer in order; null for a part that has no pattern. */
function patternsOf(part: Component): readonly string[] | null {
  switch (part.type) {
    case "Sequence": {
      const parts = (part["pretokenizers"] ?? []) as readonly Component[];
      const patterns = parts.map(patternsOf);
      return patterns.includes(null) ? null : patterns.flatMap((partPatterns) => partPatterns ?? []);
    }
    case "Split": {
      const { Regex: regex } = (part["pattern"] ?? {}) as { readonly Regex?: unknown };
      return typeof regex === "string" && part["behavior"] === "Isolated" && part["invert"] !== true ? [regex] : null;
    }
    case "Digits":
      return [part["individual_digits"] === true ? "\\p{N}" : "\\p{N}+"];
    case "ByteLevel":
      if (part["add_prefix_space"] === true) return null;
      return part["use_regex"] === false ? [] : [GPT_2];
    default:
      return null;
  }
}

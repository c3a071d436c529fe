/** Byte-level pre-tokenizers of llama.cpp, by identifier: the regular expressions that split a text before the merges of BPE. */

/** Pattern of Llama 3; Qwen 2 and 3 have the same with single digits. */
const wordsWithDigits = (digits: string) =>
  `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
/** Pattern of GPT-4o and its relatives: words end where lower case is followed by upper case. */
const casedWords = (contractions: string, digits: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+${contractions}|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*${contractions}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
/** Pattern of GPT-2, built into the pre-tokenizer `ByteLevel`. */
export const GPT_2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/** Words of DeepSeek V3. */
const DEEPSEEK_WORDS =
  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
/** Letters of DeepSeek LLM. */
const DEEPSEEK_LETTERS =
  "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+";

/** Pre-tokenizer: patterns that are applied in order, each to the pieces that the one before leaves. */
export interface GgufPreTokenizer {
  /** Identifier in `tokenizer.ggml.pre`. */
  readonly id: string;
  /** Other identifiers with the same patterns. */
  readonly aliases?: readonly string[] | undefined;
  readonly patterns: readonly string[];
  /** Whether a word that is a token is taken whole, without merges. */
  readonly ignoresMerges: boolean;
  /** Whether the BOS is added if the file has no `tokenizer.ggml.add_bos_token`. */
  readonly addsBos?: boolean | undefined;
  /** Whether the models' own tokenizers normalize text to Unicode normalization form C, which llama.cpp does not. */
  readonly isNormalized?: boolean | undefined;
}

/**
 * Pre-tokenizers. Where several have the same patterns, exported files get the identifier of the first.
 *
 * @source https://github.com/ggml-org/llama.cpp, `llm_tokenizer_bpe` and `llama_vocab::impl::load` in `src/llama-vocab.cpp`
 */
export const PRE_TOKENIZERS: readonly GgufPreTokenizer[] = [
  { id: "gpt-2", aliases: ["phi-2", "gigachat", "mellum", "exaone4", "olmo", "mpt"], patterns: [GPT_2], ignoresMerges: false },
  {
    id: "smollm",
    aliases: ["starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
    patterns: ["\\p{N}", GPT_2],
    ignoresMerges: false,
  },
  {
    id: "llama-bpe",
    aliases: ["llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
    patterns: [wordsWithDigits("\\p{N}{1,3}")],
    ignoresMerges: true,
    addsBos: true,
  },
  { id: "smaug-bpe", aliases: ["dbrx", "chatglm-bpe"], patterns: [wordsWithDigits("\\p{N}{1,3}")], ignoresMerges: false },
  {
    id: "qwen2",
    aliases: ["deepseek-r1-qwen", "megrez"],
    patterns: [wordsWithDigits("\\p{N}")],
    ignoresMerges: false,
    isNormalized: true,
  },
  { id: "stablelm2", aliases: ["hunyuan", "solar-open", "grok-2"], patterns: [wordsWithDigits("\\p{N}")], ignoresMerges: false },
  {
    id: "qwen35",
    patterns: [
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    ],
    ignoresMerges: false,
    isNormalized: true,
  },
  { id: "tekken", patterns: [casedWords("", "\\p{N}")], ignoresMerges: true, addsBos: true },
  { id: "gpt-4o", aliases: ["llama4"], patterns: [casedWords("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "\\p{N}{1,3}")], ignoresMerges: false },
  {
    id: "deepseek-llm",
    patterns: [
      "[\\r\\n]",
      DEEPSEEK_LETTERS,
      "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
      "\\s+$",
      "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
      "\\p{N}+",
    ],
    ignoresMerges: false,
  },
  {
    id: "deepseek-coder",
    patterns: ["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"],
    ignoresMerges: false,
  },
  {
    id: "deepseek-v3",
    aliases: ["hunyuan-dense", "joyai-llm"],
    patterns: ["\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", DEEPSEEK_WORDS],
    ignoresMerges: false,
  },
];

/** Returns the pre-tokenizer with an identifier; undefined for an unknown one. */
export function preTokenizerWithId(id: string): GgufPreTokenizer | undefined {
  return PRE_TOKENIZERS.find((each) => each.id === id || each.aliases?.includes(id) === true);
}

/** Returns all identifiers that can be read. */
export function preTokenizerIds(): string[] {
  return PRE_TOKENIZERS.flatMap(({ id, aliases = [] }) => [id, ...aliases]);
}

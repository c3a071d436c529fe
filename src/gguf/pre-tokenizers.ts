/** Byte-level pre-tokenizers of llama.cpp, by identifier. */

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
  "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

/** Pre-tokenizer: patterns that split a text one after the other. */
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
 * Pre-tokenizers. Where several have the same patterns, the first is written on export.
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
    patterns: ["[\\r\\n]", DEEPSEEK_LETTERS, "\\s?[!-/:-~！-／：-～‘-‟　-。]+", "\\s+$", "[一-龥ࠀ-一가-퟿]+", "\\p{N}+"],
    ignoresMerges: false,
  },
  {
    id: "deepseek-coder",
    patterns: ["[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"],
    ignoresMerges: false,
  },
  {
    id: "deepseek-v3",
    aliases: ["hunyuan-dense", "joyai-llm"],
    patterns: ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_WORDS],
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

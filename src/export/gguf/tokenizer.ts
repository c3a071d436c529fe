/** Conversion of a tokenizer in Hugging Face layout to metadata in GGUF. `base/gguf/tokenizer.ts` converts in the opposite direction. */
import { DataError, UnsupportedError } from "../../base/errors.ts";
import { TOKEN_TYPES } from "../../base/gguf/vocabulary.ts";
import { byteFallbackPipeline, byteOf, isByteFallback } from "../../text/tokenizer/byte-fallback.ts";
import { readTokenizerFiles, type TokenizerFiles } from "../../text/tokenizer/load.ts";
import type { TokenizerConfigFile, TokenizerFile } from "../../text/tokenizer/files.ts";
import { loadTokenizer, type ChatTokenizer } from "../../text/tokenizer/index.ts";
import { preTokenizerOf } from "./pre-tokenizers.ts";
import { mergeScores } from "./scores.ts";
import type { MetadataValue } from "./writer.ts";

/** Metadata of a tokenizer, and its known differences from the original. */
export interface TokenizerMetadata {
  readonly metadata: readonly (readonly [string, MetadataValue])[];
  /** Sentences about texts that llama.cpp splits into other tokens. */
  readonly warnings: readonly string[];
}

/**
 * Reads the tokenizer and the chat template of a model directory.
 *
 * @param directory - Directory in Hugging Face layout.
 * @param vocabularySize - Rows of the embedding; rows without a token get unused tokens.
 * @param preTokenizer - llama.cpp's identifier of the pre-tokenizer; undefined to choose by the patterns of `tokenizer.json`.
 * @throws UnsupportedError `E_UNSUPPORTED` for a tokenizer that llama.cpp does not have; the message names the part.
 */
export async function ggufTokenizer(
  directory: string,
  { vocabularySize, preTokenizer }: { readonly vocabularySize: number; readonly preTokenizer: string | undefined },
): Promise<TokenizerMetadata> {
  const files = await readTokenizerFiles(directory);
  const { file, config } = files;
  const { tokens, types } = vocabulary(file, vocabularySize);
  const kind = isByteFallback(file) ? sentencePiece(file, config, tokens, preTokenizer) : byteLevel(file, preTokenizer);
  return {
    metadata: [
      ...kind.metadata,
      ["tokenizer.ggml.tokens", { type: "strings", value: tokens }],
      ["tokenizer.ggml.token_type", { type: "int32s", value: types }],
      ...(await specialTokens(directory, files, tokens)),
      ...templates(files),
    ],
    warnings: [...kind.warnings, ...strippingWarnings(file)],
  };
}

/** Returns the metadata of a tokenizer with the pieces of SentencePiece. */
function sentencePiece(
  file: TokenizerFile,
  config: TokenizerConfigFile,
  tokens: readonly string[],
  preTokenizer: string | undefined,
): TokenizerMetadata {
  if (preTokenizer !== undefined)
    throw new UnsupportedError("A SentencePiece tokenizer has no pre-tokenizer in llama.cpp: omit the option `preTokenizer`", {
      param: "preTokenizer",
    });
  const { prefix, hasOwnNormalizer } = byteFallbackPipeline(file, config);
  return {
    metadata: [
      ["tokenizer.ggml.model", { type: "string", value: "llama" }],
      ["tokenizer.ggml.pre", { type: "string", value: "default" }],
      ["tokenizer.ggml.scores", { type: "float32s", value: mergeScores(file, tokens) }],
      ["tokenizer.ggml.add_space_prefix", { type: "bool", value: prefix !== "never" }],
    ],
    warnings: prefix === "first" || (prefix === "always" && !hasOwnNormalizer) ? [PREFIX_WARNING] : [],
  };
}

/** Returns the metadata of a byte-level tokenizer, as in GPT-2. */
function byteLevel(file: TokenizerFile, preTokenizer: string | undefined): TokenizerMetadata {
  const merges = file.model.merges.map((merge) => (typeof merge === "string" ? merge : merge.join(" ")));
  const optionWarnings: string[] = [];
  if (preTokenizer !== undefined)
    optionWarnings.push(
      `The pre-tokenizer ${preTokenizer} was chosen by an option: llama.cpp may split texts into other tokens than the model was trained on.`,
    );
  return {
    metadata: [
      ["tokenizer.ggml.model", { type: "string", value: "gpt2" }],
      ["tokenizer.ggml.pre", { type: "string", value: preTokenizer ?? preTokenizerOf(file) }],
      ["tokenizer.ggml.merges", { type: "strings", value: merges }],
    ],
    warnings: [...optionWarnings, ...normalizerWarnings(file)],
  };
}

/** Warns of added tokens that remove the spaces next to them. */
function strippingWarnings({ added_tokens: added }: TokenizerFile): string[] {
  const stripping = added.filter((token) => token["lstrip"] === true || token["rstrip"] === true).map(({ content }) => content);
  if (stripping.length === 0) return [];
  return [`llama.cpp keeps spaces next to ${stripping.join(", ")}; the model's own tokenizer removes them.`];
}

/** Warning for a tokenizer that does not put a space in front of every text after a special token. */
const PREFIX_WARNING =
  "llama.cpp puts a space in front of every text after a special token; this tokenizer does not in all places, so prompts may differ by a space token there.";

/** Warns of a normalizer, which llama.cpp does not have. @throws UnsupportedError `E_UNSUPPORTED` for another one than NFC. */
function normalizerWarnings({ normalizer }: TokenizerFile): string[] {
  if (normalizer === null) return [];
  if (normalizer.type === "NFC")
    return ["llama.cpp does not normalize text: pass text in Unicode normalization form C, as the model's own tokenizer produces."];
  throw new UnsupportedError(`tokenizer.json: expected no normalizer or NFC for GGUF, got ${normalizer.type}`, { param: "format" });
}

/** Returns texts and types of all tokens by id. Ids without a token get the unused token `[PAD<id>]`. */
function vocabulary(file: TokenizerFile, size: number): { tokens: string[]; types: number[] } {
  const tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
  const types = tokens.map((): number => TOKEN_TYPES.unused);
  const unknown = file.model["unk_token"];
  const setToken = (id: number, text: string, type: number) => {
    if (id >= size) throw new DataError(`tokenizer.json: expected token ids below ${size}, the rows of the embedding, got ${id}`);
    tokens[id] = text;
    types[id] = type;
  };
  const hasByteTokens = isByteFallback(file);
  const typeOf = (text: string): number => {
    if (text === unknown) return TOKEN_TYPES.unknown;
    return hasByteTokens && byteOf(text) !== undefined ? TOKEN_TYPES.byte : TOKEN_TYPES.normal;
  };
  for (const [text, id] of Object.entries(file.model.vocab)) setToken(id, text, typeOf(text));
  for (const { id, content, special } of file.added_tokens)
    if (content !== unknown) setToken(id, content, special ? TOKEN_TYPES.control : TOKEN_TYPES.userDefined);
  return { tokens, types };
}

/** Returns the ids of special tokens, and whether BOS and EOS are added to a text. */
async function specialTokens(
  directory: string,
  { file, config }: TokenizerFiles,
  tokens: readonly string[],
): Promise<(readonly [string, MetadataValue])[]> {
  const ids = new Map(tokens.map((text, id) => [text, id]));
  const idOf = (key: keyof TokenizerConfigFile) => ids.get((config[key] ?? "") as string);
  const tokenizer = await loadTokenizer(directory);
  const eos = idOf("eos_token") ?? tokenizer.eosTokenIds[0];
  // Without this key, llama.cpp takes token 11 (GPT-2) or 1 (Llama) for the BOS.
  const bos = idOf("bos_token") ?? eos;
  const added = addedTokens(tokenizer);
  const isAtMost = (ids: readonly number[], id: number | undefined) => ids.length === 0 || (ids.length === 1 && ids[0] === id);
  if (added === null || !isAtMost(added.before, bos) || !isAtMost(added.after, eos))
    throw new UnsupportedError(
      `tokenizer.json: expected a post-processor that adds at most the BOS in front and the EOS at the end, got ${JSON.stringify(file.post_processor).slice(0, 300)}`,
      { param: "format" },
    );
  const idsByName: readonly (readonly [string, number | undefined])[] = [
    ["bos", bos],
    ["eos", eos],
    ["unknown", idOf("unk_token")],
    ["padding", idOf("pad_token")],
    ["eot", tokenizer.eosTokenIds.find((id) => id !== eos)],
  ];
  return [
    ...idsByName.flatMap(([name, value]) =>
      value === undefined ? [] : [[`tokenizer.ggml.${name}_token_id`, { type: "uint32", value }] as const],
    ),
    ["tokenizer.ggml.add_bos_token", { type: "bool", value: added.before.length > 0 }],
    ["tokenizer.ggml.add_eos_token", { type: "bool", value: added.after.length > 0 }],
  ];
}

/**
 * Returns the ids that the post-processor adds before and after a text, found by encoding a text with and without special tokens; null if
 * the ids of the text itself change.
 */
function addedTokens(tokenizer: ChatTokenizer): { readonly before: readonly number[]; readonly after: readonly number[] } | null {
  const textIds = [...tokenizer.encode("a")];
  const allIds = [...tokenizer.encode("a", { addSpecialTokens: true })];
  const start = allIds.findIndex((_, index) => textIds.every((id, i) => allIds[index + i] === id));
  if (start < 0) return null;
  return { before: allIds.slice(0, start), after: allIds.slice(start + textIds.length) };
}

/** Returns the chat template, and the template for requests with tools if there is one. */
function templates({ templates: { default: template, toolUse } }: TokenizerFiles): (readonly [string, MetadataValue])[] {
  if (template === undefined) return [];
  const metadata: (readonly [string, MetadataValue])[] = [["tokenizer.chat_template", { type: "string", value: template }]];
  if (toolUse !== undefined)
    metadata.push(
      ["tokenizer.chat_templates", { type: "strings", value: ["tool_use"] }],
      ["tokenizer.chat_template.tool_use", { type: "string", value: toolUse }],
    );
  return metadata;
}

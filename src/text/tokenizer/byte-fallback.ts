/**
 * BPE tokenizers in the style of SentencePiece, such as the tokenizer of Llama 2: `▁` stands for a space, a text gets a leading space, and
 * characters outside the vocabulary become tokens of one byte each (`<0x0A>`).
 */

import { UnsupportedError } from "../../base/errors.ts";
import { component, type Component, type TokenizerConfigFile, type TokenizerFile } from "./files.ts";

/** Character that stands for a space in the texts of tokens. */
const SPACE = "▁";
const BYTE_TOKEN = /^<0x([0-9A-F]{2})>$/;
const encoder = new TextEncoder();

/**
 * Sections of a text that get a space in front; added tokens divide a text into sections. `first` is the section at the beginning of the
 * text: none if the text begins with an added token.
 */
export type SpacePrefix = "always" | "first" | "never";

/** Pipeline of a byte-fallback tokenizer. */
export interface ByteFallbackPipeline {
  readonly prefix: SpacePrefix;
  /** Whether the file's own normalizer puts the space in front, also of text that begins with a space. */
  readonly hasOwnNormalizer: boolean;
  /** `tokenizer.json` with the normalizer and pre-tokenizer to use. */
  readonly file: TokenizerFile;
  /** The same file without spaces in front: for text that continues other text. */
  readonly continuation: TokenizerFile;
}

/** Whether the model of a file falls back to bytes. */
export function isByteFallback(file: TokenizerFile): boolean {
  return (file.model.type ?? "BPE") === "BPE" && file.model["byte_fallback"] === true;
}

/** Returns the bytes that a token stands for: one byte for `<0x0A>`, otherwise its text with spaces instead of `▁`. */
export function bytesOfPiece(token: string): Uint8Array {
  const byte = byteOf(token);
  return byte === undefined ? encoder.encode(token.replaceAll(SPACE, " ")) : Uint8Array.of(byte);
}

/** Returns the byte of a token of one byte such as `<0x0A>`; undefined for other tokens. */
export function byteOf(token: string): number | undefined {
  const hex = BYTE_TOKEN.exec(token)?.[1];
  return hex === undefined ? undefined : Number.parseInt(hex, 16);
}

/**
 * Reads the pipeline of a byte-fallback tokenizer.
 *
 * Like transformers 5, a `tokenizer_class` of Llama replaces the file's own pipeline: a space goes in front of the whole text, with
 * `legacy` also in front of each part after an added token, and with `add_prefix_space: false` nowhere.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming the part that is not supported.
 */
export function byteFallbackPipeline(file: TokenizerFile, config: TokenizerConfigFile): ByteFallbackPipeline {
  requireDecoder(file.decoder);
  const prefix = isLlamaClass(config) ? llamaPrefix(config) : filePrefix(file);
  const withPrefix = (scheme: SpacePrefix): TokenizerFile => ({
    ...file,
    normalizer: null,
    pre_tokenizer: { type: "Metaspace", replacement: SPACE, prepend_scheme: scheme, split: false },
  });
  // The file's own normalizer stays, because `Metaspace` is not equivalent: only `Prepend` puts a space also in front of text that begins
  // with one.
  const hasOwnNormalizer = !isLlamaClass(config) && isUnused(file.pre_tokenizer);
  return {
    prefix,
    hasOwnNormalizer,
    file: hasOwnNormalizer ? file : withPrefix(prefix),
    continuation: hasOwnNormalizer ? { ...file, normalizer: REPLACE_SPACES } : withPrefix("never"),
  };
}

/** Normalizer that replaces spaces by `▁`. */
const REPLACE_SPACES: Component = { type: "Replace", pattern: { String: " " }, content: SPACE };

/** Whether transformers ignores the pipeline of the file, because the tokenizer's class is Llama's. */
function isLlamaClass(config: TokenizerConfigFile): boolean {
  return config["tokenizer_class"] === "LlamaTokenizer" || config["tokenizer_class"] === "LlamaTokenizerFast";
}

/** Returns the prefix that the settings of a Llama tokenizer class ask for. */
function llamaPrefix(config: TokenizerConfigFile): SpacePrefix {
  if (config["add_prefix_space"] === false) return "never";
  return config["legacy"] === true ? "always" : "first";
}

/** Returns the prefix that the file's own normalizer or pre-tokenizer produces. */
function filePrefix({ normalizer, pre_tokenizer: preTokenizer }: TokenizerFile): SpacePrefix {
  const normalizers = partsOf(normalizer, "normalizers");
  const fromNormalizers = isUnused(preTokenizer) ? normalizerPrefix(normalizers) : null;
  const fromPreTokenizer = normalizers.length === 0 ? metaspacePrefix(preTokenizer) : null;
  const prefix = fromNormalizers ?? fromPreTokenizer;
  if (prefix !== null) return prefix;
  throw new UnsupportedError(
    `tokenizer.json: expected a byte-fallback tokenizer with the normalizers \`Prepend\` and \`Replace\`, or the pre-tokenizer \`Metaspace\` with \`prepend_scheme\` and without \`split\`; ` +
      `got normalizer ${listed(normalizers)}, pre-tokenizer \`${preTokenizer?.type ?? "none"}\`.`,
  );
}

/** Returns the prefix of the normalizers `Prepend` and `Replace`, or `Replace` alone; null for other normalizers. */
function normalizerPrefix(normalizers: readonly Component[]): SpacePrefix | null {
  const replace = normalizers.at(-1);
  const replacesSpaces = replace?.type === "Replace" && searchedText(replace) === " " && replace["content"] === SPACE;
  if (!replacesSpaces) return null;
  if (normalizers.length === 1) return "never";
  const [prepend] = normalizers;
  return normalizers.length === 2 && prepend?.type === "Prepend" && prepend["prepend"] === SPACE ? "always" : null;
}

/** Returns the prefix of the pre-tokenizer `Metaspace`; null for another pre-tokenizer, and for one that splits the text. */
function metaspacePrefix(preTokenizer: Component | null): SpacePrefix | null {
  const isMetaspace = preTokenizer?.type === "Metaspace" && preTokenizer["replacement"] === SPACE && preTokenizer["split"] === false;
  if (!isMetaspace) return null;
  const scheme = preTokenizer["prepend_scheme"];
  return scheme === "always" || scheme === "first" || scheme === "never" ? scheme : null;
}

/** Whether a pre-tokenizer has no effect: null, or Gemma's, which cuts at spaces that the normalizer has replaced. */
function isUnused(part: Component | null): boolean {
  return part === null || (part.type === "Split" && searchedText(part) === " ");
}

/** Returns the parts of a `Sequence`, which holds them under the key `list`; a list of the part itself for other parts. */
function partsOf(part: Component | null, list: string): readonly Component[] {
  if (part === null) return [];
  if (part.type !== "Sequence") return [part];
  return component.array().safeParse(part[list]).data ?? [];
}

/** Returns the types of parts, for messages. */
function listed(parts: readonly Component[]): string {
  return parts.length === 0 ? "`none`" : parts.map(({ type }) => `\`${type}\``).join(", ");
}

/** Returns the text that a part searches for; undefined if it searches for a regular expression or nothing. */
function searchedText(part: Component): unknown {
  return (part["pattern"] as { readonly String?: unknown } | undefined)?.String;
}

/** @throws UnsupportedError `E_UNSUPPORTED` for a decoder other than the one of SentencePiece. */
function requireDecoder(decoder: Component | null): void {
  const parts = partsOf(decoder, "decoders");
  const [replace, bytes, fuse, strip] = parts;
  const replacesMarks = replace?.type === "Replace" && searchedText(replace) === SPACE && replace["content"] === " ";
  // `Strip` removes the space in front of the first word.
  const stripsSpace = strip?.type === "Strip" && strip["content"] === " " && strip["start"] === 1 && strip["stop"] === 0;
  const hasKnownEnd = strip === undefined || (stripsSpace && parts.length === 4);
  if (replacesMarks && bytes?.type === "ByteFallback" && fuse?.type === "Fuse" && hasKnownEnd) return;
  throw new UnsupportedError(
    `tokenizer.json: expected the decoders \`Replace\`, \`ByteFallback\`, \`Fuse\` and \`Strip\` of one space, got ${listed(parts)}.`,
  );
}

/** Byte-level BPE tokenizers: the tokens stand for bytes in the byte alphabet of GPT-2. */
import { z } from "zod";
import { UnsupportedError } from "../../base/errors.ts";
import { component, type Component, type TokenizerFile } from "./files.ts";

/**
 * Requires a byte-level tokenizer: a BPE model, a decoder with `ByteLevel`, and a pre-tokenizer that ends with `ByteLevel`.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for another tokenizer.
 */
export function requireByteLevel(file: TokenizerFile): void {
  const type = file.model.type ?? "BPE";
  if (type === "BPE" && endsWithByteLevel(file.pre_tokenizer) && hasByteLevel(file.decoder)) return;
  throw new UnsupportedError(
    `tokenizer.json: expected a BPE tokenizer with \`byte_fallback\`, or a byte-level one (last pre-tokenizer and decoder \`ByteLevel\`), got model \`${type}\`, ` +
      `pre-tokenizer \`${describe(file.pre_tokenizer, "pretokenizers")}\`, decoder \`${describe(file.decoder, "decoders")}\`.`,
  );
}

/** Returns the parts of a `Sequence`, which holds them under `key`; none if they are not valid. */
function listOf(part: Component, key: string): readonly Component[] {
  return z.array(component).safeParse(part[key]).data ?? [];
}

/**
 * Whether `ByteLevel` is the last part and no earlier one. It turns bytes into characters of the byte alphabet, so a part after it would
 * cut these instead of the characters of the text.
 */
function endsWithByteLevel(part: Component | null): boolean {
  if (part === null) return false;
  if (part.type === "ByteLevel") return true;
  if (part.type !== "Sequence") return false;
  const parts = listOf(part, "pretokenizers");
  const hasEarlierOne = parts.slice(0, -1).some((earlier) => hasByteLevel(earlier, "pretokenizers"));
  return !hasEarlierOne && endsWithByteLevel(parts.at(-1) ?? null);
}

/** Whether `ByteLevel` is a part, or a part of a `Sequence`, which holds its parts under `key`. */
function hasByteLevel(part: Component | null, key = "decoders"): boolean {
  if (part === null) return false;
  return part.type === "ByteLevel" || (part.type === "Sequence" && listOf(part, key).some((inner) => hasByteLevel(inner, key)));
}

/** Returns the type of a part, and of the parts of a `Sequence`, for messages. */
function describe(part: Component | null, key: string): string {
  if (part === null) return "none";
  if (part.type !== "Sequence") return part.type;
  const types = listOf(part, key).map(({ type }) => type);
  return `Sequence of ${types.join(", ")}`;
}

/**
 * The byte alphabet of byte-level BPE: every byte has one printable character, so that a vocabulary is plain text.
 * Printable bytes stand for themselves, the others for the characters from U+0100 on, in order.
 *
 * @source Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (the GPT-2 encoder).
 */

/** Bytes by the code points of their characters, the largest of which is U+0143; -1 for other code points. */
const BYTE_OF_CODE_POINT = new Int16Array(0x200).fill(-1);
for (const [byte, character] of byteAlphabet().entries()) BYTE_OF_CODE_POINT[character.charCodeAt(0)] = byte;

/** Returns the 256 characters, indexed by byte. */
export function byteAlphabet(): string[] {
  const characters: string[] = [];
  let nextReplacement = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters.push(String.fromCharCode(isPrintable ? byte : nextReplacement));
    if (!isPrintable) nextReplacement++;
  }
  return characters;
}

/**
 * Returns the bytes that a byte-level token stands for.
 *
 * @param text - UTF-8 of the token's text.
 * @returns undefined if the text has a character outside the alphabet; the token is literal text then.
 */
export function bytesOfToken(text: Uint8Array): Uint8Array | undefined {
  const bytes = new Uint8Array(text.length);
  let length = 0;
  for (let at = 0; at < text.length;) {
    const firstByte = text[at]!;
    // All characters of the alphabet have one or two bytes in UTF-8.
    if (firstByte >= 0xe0) return undefined;
    const isAscii = firstByte < 0x80;
    const codePoint = isAscii ? firstByte : ((firstByte & 0x1f) << 6) | (text[at + 1]! & 0x3f);
    at += isAscii ? 1 : 2;
    const byte = BYTE_OF_CODE_POINT[codePoint] ?? -1;
    if (byte < 0) return undefined;
    bytes[length++] = byte;
  }
  return bytes.subarray(0, length);
}

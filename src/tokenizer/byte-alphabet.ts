/**
 * The byte alphabet of byte-level BPE: every byte has one printable character, so that a vocabulary is plain text.
 * Printable bytes stand for themselves, the others for the characters from U+0100 on, in order.
 *
 * @source Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (the GPT-2 encoder).
 */

const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = new Map(byteAlphabet().map((character, byte) => [character, byte]));

/** The 256 characters, indexed by byte. */
export function byteAlphabet(): string[] {
  const characters: string[] = [];
  let shifted = 0;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters.push(String.fromCharCode(printable ? byte : 0x100 + shifted++));
  }
  return characters;
}

/**
 * The bytes a byte-level token stands for, or undefined when it has a character outside the alphabet (then the token is
 * literal text).
 */
export function bytesOfToken(token: string): Uint8Array | undefined {
  const bytes = new Uint8Array(token.length);
  for (let index = 0; index < token.length; index++) {
    const byte = BYTE_OF_CHARACTER.get(token.charAt(index));
    if (byte === undefined) return undefined;
    bytes[index] = byte;
  }
  return bytes;
}

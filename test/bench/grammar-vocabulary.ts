/**
 * Vocabulary of 32,000 tokens in the style of byte-level tokenizers, generated from rules and a seed: every byte, numbers, runs of white space
 * and punctuation, words and pieces of words with and without a space before them, characters of several scripts and halves of them.
 */

/** Id of the end token, which has no text. */
export const END_TOKEN_ID = 0;
const SIZE = 32_000;

const SYLLABLES = "a be con de er fi ga ho in ju ka lo mi ne or pra qua re sta tion ul ver wi ex y za ing ment able ness th sh".split(" ");
const PUNCTUATION = Array.from("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");

/** Whole numbers below a bound, by a 32-bit xorshift. */
function generator(): (below: number) => number {
  let state = 0x9e3779b9;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) % below;
  };
}

function word(draw: (below: number) => number): string {
  // As in real vocabularies, most tokens are of two or three syllables.
  const syllables = 1 + Math.min(draw(4), draw(4)) + draw(2);
  let text = "";
  for (let count = 0; count < syllables; count++) text += SYLLABLES[draw(SYLLABLES.length)]!;
  const cased = draw(5) === 0 ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  return draw(3) > 0 ? ` ${cased}` : cased;
}

/** The tokens by id: their bytes, null for the end. */
export function benchVocabulary(): (Uint8Array | null)[] {
  const draw = generator();
  const texts = new Set<string>();
  for (let number = 0; number < 1000; number++) for (const width of [1, 2, 3]) texts.add(String(number).padStart(width, "0"));
  for (let length = 2; length <= 64; length++) for (const start of ["", "\n", "\n\n", "\t"]) texts.add(start + " ".repeat(length));
  for (const a of PUNCTUATION) for (const b of PUNCTUATION) texts.add(a + b).add(` ${a}${b}`);
  for (const text of ['":"', '","', '": "', '", "', '"},{"', '":[{"', '"]}', '":{"', "\\n\\n", '\\"']) texts.add(text);
  for (const [first, last, step] of [
    [0xa1, 0x17f, 1],
    [0x391, 0x3c9, 1],
    [0x410, 0x44f, 1],
    [0x3041, 0x30ff, 1],
    [0x4e00, 0x9fff, 9],
    [0xac00, 0xd7a3, 17],
    [0x1f300, 0x1f64f, 3],
  ] as const)
    for (let point = first; point <= last; point += step) texts.add(String.fromCodePoint(point));
  const halves = [...texts].flatMap((text) => (Buffer.byteLength(text) >= 3 && text.length <= 2 ? [Buffer.from(text).subarray(0, 2)] : []));
  const pieces = [...new Map(halves.map((half) => [half.toString("hex"), half])).values()].filter((half) => half[0]! >= 0xe0);
  const room = SIZE - 1 - 256 - pieces.length;
  while (texts.size < room) texts.add(word(draw));
  const bytes = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
  return [null, ...bytes, ...pieces, ...Array.from(texts, (text) => Buffer.from(text))];
}

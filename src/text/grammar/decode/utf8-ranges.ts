/** UTF-8 encodings of ranges of code points, as sequences of byte ranges. */
import { normalized } from "../code-points.ts";
import type { CodePointRange } from "../expression.ts";

/** Range of bytes from the first to the last, both included. */
export type ByteRange = readonly [first: number, last: number];

/** Ranges of code points with encodings of equal length. Surrogates have no encoding and are left out. */
const BLOCKS: readonly CodePointRange[] = [
  [0, 0x7f],
  [0x80, 0x7ff],
  [0x800, 0xd7ff],
  [0xe000, 0xffff],
  [0x10000, 0x10ffff],
];

/** Encodes a code point in UTF-8. @source RFC 3629 section 3. */
function encoded(codePoint: number): number[] {
  const tail = (shift: number): number => 0x80 | ((codePoint >> shift) & 0x3f);
  if (codePoint < 0x80) return [codePoint];
  if (codePoint < 0x800) return [0xc0 | (codePoint >> 6), tail(0)];
  if (codePoint < 0x10000) return [0xe0 | (codePoint >> 12), tail(6), tail(0)];
  return [0xf0 | (codePoint >> 18), tail(12), tail(6), tail(0)];
}

/**
 * Splits the encodings of equal length from `first` to `last` into products of byte ranges. The bytes after the first one range over 80–BF
 * where it is not at an end: C3 A9 – C5 82 becomes [C3][A9–BF], [C4][80–BF] and [C5][80–82].
 */
function split(first: readonly number[], last: readonly number[]): ByteRange[][] {
  const [a, ...restA] = first;
  const [b, ...restB] = last;
  if (a === undefined || b === undefined) return [[]];
  if (a === b) return split(restA, restB).map((rest) => [[a, b], ...rest]);
  // Whether the first byte's whole block is included at each end of the range.
  const isWholeAtFirst = restA.every((byte) => byte === 0x80);
  const isWholeAtLast = restB.every((byte) => byte === 0xbf);
  const pieces: ByteRange[][] = [];
  const [from, to] = [isWholeAtFirst ? a : a + 1, isWholeAtLast ? b : b - 1];
  const ends = (byte: number) => restA.map(() => byte);
  if (!isWholeAtFirst) pieces.push(...split(restA, ends(0xbf)).map((rest): ByteRange[] => [[a, a], ...rest]));
  if (from <= to) pieces.push([[from, to], ...restA.map((): ByteRange => [0x80, 0xbf])]);
  if (!isWholeAtLast) pieces.push(...split(ends(0x80), restB).map((rest): ByteRange[] => [[b, b], ...rest]));
  return pieces;
}

/** Returns the encodings of the code points in `ranges` as disjoint products of byte ranges: one byte of each range, in order. */
export function utf8Ranges(ranges: readonly CodePointRange[]): ByteRange[][] {
  return normalized(ranges).flatMap(([first, last]) =>
    BLOCKS.flatMap(([low, high]) => {
      const [from, to] = [Math.max(first, low), Math.min(last, high)];
      if (from === to) return [encoded(from).map((byte): ByteRange => [byte, byte])];
      return from < to ? split(encoded(from), encoded(to)) : [];
    }),
  );
}

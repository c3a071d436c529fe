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
  const [firstLead, ...firstTail] = first;
  const [lastLead, ...lastTail] = last;
  if (firstLead === undefined || lastLead === undefined) return [[]];
  const withLead = (lead: number, tails: readonly ByteRange[][]): ByteRange[][] => tails.map((tail) => [[lead, lead], ...tail]);
  if (firstLead === lastLead) return withLead(firstLead, split(firstTail, lastTail));
  // Whether all tails of the lead byte at each end are included.
  const isWholeAtFirst = firstTail.every((byte) => byte === 0x80);
  const isWholeAtLast = lastTail.every((byte) => byte === 0xbf);
  const [minTail, maxTail] = [firstTail.map(() => 0x80), firstTail.map(() => 0xbf)];
  const [fromWhole, toWhole] = [isWholeAtFirst ? firstLead : firstLead + 1, isWholeAtLast ? lastLead : lastLead - 1];
  const pieces: ByteRange[][] = [];
  if (!isWholeAtFirst) pieces.push(...withLead(firstLead, split(firstTail, maxTail)));
  if (fromWhole <= toWhole) pieces.push([[fromWhole, toWhole], ...firstTail.map((): ByteRange => [0x80, 0xbf])]);
  if (!isWholeAtLast) pieces.push(...withLead(lastLead, split(minTail, lastTail)));
  return pieces;
}

/** Returns the encodings of the code points in `ranges` as disjoint products of byte ranges: one byte of each range, in order. */
export function utf8Ranges(ranges: readonly CodePointRange[]): ByteRange[][] {
  return normalized(ranges).flatMap(([first, last]) =>
    BLOCKS.flatMap(([blockFirst, blockLast]) => {
      const [from, to] = [Math.max(first, blockFirst), Math.min(last, blockLast)];
      if (from === to) return [encoded(from).map((byte): ByteRange => [byte, byte])];
      return from < to ? split(encoded(from), encoded(to)) : [];
    }),
  );
}

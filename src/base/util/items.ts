/** Access to items that must exist. A missing item is an error of this package, which names what is missing, instead of `undefined`. */

/** Lists and typed arrays. */
interface Items<T> {
  readonly length: number;
  at(index: number): T | undefined;
}

/** Returns the item at `index`, from the end if it is negative. Not for inner loops over numbers. @throws RangeError if there is none */
export function itemAt<T>(items: Items<T>, index: number): T {
  const item = items.at(index);
  if (item === undefined) throw new RangeError(`Expected an item at index ${index}, got ${items.length} items`);
  return item;
}

/** Returns the first item. @throws RangeError if there is none */
export function first<T>(items: Items<T>): T {
  return itemAt(items, 0);
}

/** Returns the last item. @throws RangeError if there is none */
export function last<T>(items: Items<T>): T {
  return itemAt(items, -1);
}

/** Returns the code point at an index of UTF-16 code units. @throws RangeError at the end of the text */
export function codePointAt(text: string, index: number): number {
  const codePoint = text.codePointAt(index);
  if (codePoint === undefined) throw new RangeError(`Expected a character at index ${index}, got ${text.length} code units`);
  return codePoint;
}

/** Returns the pairs of items with the same index. @throws RangeError if the lengths differ */
export function zip<A, B>(a: readonly A[], b: readonly B[]): [A, B][] {
  if (a.length !== b.length) throw new RangeError(`Expected as many items as ${a.length}, got ${b.length}`);
  return a.map((item, index) => [item, b[index] as B]);
}

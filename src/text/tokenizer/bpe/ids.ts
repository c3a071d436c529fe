/** Growing list of token ids, in an `Int32Array` with spare room. */
export class IdList {
  /** Ids, with unused elements after the first `#length`. */
  #ids = new Int32Array(64);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(id: number): void {
    this.reserve(1);
    this.#ids[this.#length++] = id;
  }

  append(ids: ArrayLike<number>): void {
    this.reserve(ids.length);
    this.#ids.set(ids, this.#length);
    this.#length += ids.length;
  }

  /** Shortens the list to its first `length` ids; 0 empties it for reuse. */
  cut(length: number): void {
    this.#length = length;
  }

  /** Enlarges the array if it has no room for `count` more ids. */
  reserve(count: number): void {
    if (this.#length + count <= this.#ids.length) return;
    const larger = new Int32Array(Math.max(this.#ids.length * 2, this.#length + count));
    larger.set(this.#ids.subarray(0, this.#length));
    this.#ids = larger;
  }

  /** Returns a copy of the ids from `start`. */
  toArray(start = 0): Int32Array {
    return this.#ids.slice(start, this.#length);
  }
}

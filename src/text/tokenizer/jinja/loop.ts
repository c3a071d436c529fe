/** The variable `loop`, which a template can read in the body of a `for`. */

import { TemplateFailure, typeError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { equals } from "./operators.ts";
import { Callable, orElse, PyObject, Tuple, Undefined, type TemplateValue } from "./values.ts";

/** Iteration over a sequence, with the attributes of `loop`. The next element is read ahead only if an attribute needs it. */
export class Loop extends PyObject {
  readonly typeName = "LoopContext";
  /** Number of recursive calls of the loop around this one. */
  readonly #depth: number;
  readonly #recursion: ((iterable: TemplateValue, depth: number) => TemplateValue) | undefined;
  /** Elements that are not read yet. */
  #iterator: Iterator<TemplateValue>;
  #size: number | undefined;
  /** Position of the current element; -1 before the first one. */
  #index = -1;
  /** Result of the iterator that is read ahead; undefined if none is. */
  #peeked: IteratorResult<TemplateValue> | undefined;
  #previous: TemplateValue | undefined;
  #current: TemplateValue | undefined;
  /** Arguments of the last call of `loop.changed`. */
  #lastValues: Tuple | undefined;

  /**
   * @param size - Number of elements; undefined if it is known only after reading them.
   * @param depth - Number of recursive calls of the loop around this one.
   * @param recursion - Renders the body again over other elements; undefined unless the loop is `recursive`.
   */
  constructor(
    iterator: Iterator<TemplateValue>,
    size: number | undefined,
    depth: number,
    recursion?: (iterable: TemplateValue, depth: number) => TemplateValue,
  ) {
    super();
    this.#iterator = iterator;
    this.#size = size;
    this.#depth = depth;
    this.#recursion = recursion;
  }

  /** Moves to the next element; undefined at the end. */
  advance(): TemplateValue | undefined {
    const next = this.#peek();
    this.#peeked = undefined;
    if (next.done === true) return undefined;
    this.#index++;
    this.#previous = this.#current;
    this.#current = next.value;
    return next.value;
  }

  /** Returns the next element, without moving to it. */
  #peek(): IteratorResult<TemplateValue> {
    this.#peeked ??= this.#iterator.next();
    return this.#peeked;
  }

  /** Returns the number of elements; reads all of them if it is unknown. */
  #length(): number {
    if (this.#size === undefined) {
      const remaining: TemplateValue[] = [];
      for (let next = this.#iterator.next(); next.done !== true; next = this.#iterator.next()) remaining.push(next.value);
      this.#iterator = remaining.values();
      const hasPeekedElement = this.#peeked !== undefined && this.#peeked.done !== true;
      this.#size = this.#index + 1 + (hasPeekedElement ? 1 : 0) + remaining.length;
    }
    return this.#size;
  }

  /** Attributes that a template can read, as in Jinja's documentation of `for`. */
  static readonly #attributes: Readonly<Record<string, (loop: Loop, meter: Meter) => TemplateValue>> = {
    index: (loop) => loop.#index + 1,
    index0: (loop) => loop.#index,
    revindex: (loop) => loop.#length() - loop.#index,
    revindex0: (loop) => loop.#length() - loop.#index - 1,
    first: (loop) => loop.#index === 0,
    last: (loop) => loop.#peek().done === true,
    length: (loop) => loop.#length(),
    depth: (loop) => loop.#depth + 1,
    depth0: (loop) => loop.#depth,
    previtem: (loop) => orElse(loop.#previous, new Undefined("there is no previous item")),
    nextitem: (loop) => {
      const next = loop.#peek();
      return next.done === true ? new Undefined("there is no next item") : next.value;
    },
    cycle: (loop) =>
      new Callable((_, args) => {
        if (args.length === 0) return typeError("no items for cycling given");
        return args[loop.#index % args.length] as TemplateValue;
      }),
    changed: (loop, meter) =>
      new Callable((_, args) => {
        const value = new Tuple(args);
        if (loop.#lastValues !== undefined && equals(meter, loop.#lastValues, value)) return false;
        loop.#lastValues = value;
        return true;
      }),
  };

  /** Returns an attribute of `loop`; undefined if it has none of this name. */
  attribute(meter: Meter, name: string): TemplateValue | undefined {
    return Object.hasOwn(Loop.#attributes, name) ? Loop.#attributes[name]?.(this, meter) : undefined;
  }

  override print(): string {
    return `<LoopContext ${this.#index + 1}/${this.#length()}>`;
  }

  /** Renders the body of a recursive loop over other elements. */
  recurse(meter: Meter, args: readonly TemplateValue[]): TemplateValue {
    const recursion = this.#recursion;
    if (recursion === undefined) {
      throw new TemplateFailure("TypeError: The loop must have the 'recursive' marker to be called recursively.");
    }
    if (args.length !== 1) return typeError("loop() takes exactly one argument");
    return meter.runNested(() => recursion(args[0] as TemplateValue, this.#depth + 1));
  }
}

/** Metadata of one architecture: keys without the prefix `<architecture>.`. */
import { UnsupportedError } from "../errors.ts";
import type { GgufMetadata } from "./metadata.ts";

/** Getters of the values of one architecture. They return undefined for a missing key; errors name the full key. */
export class MetadataKeys {
  readonly #metadata: GgufMetadata;
  readonly #architecture: string;

  constructor(metadata: GgufMetadata, architecture: string) {
    this.#metadata = metadata;
    this.#architecture = architecture;
  }

  /** Name of the file for error messages. */
  get label(): string {
    return this.#metadata.label;
  }

  /** Returns the full name of a key. */
  name(key: string): string {
    return `${this.#architecture}.${key}`;
  }

  number(key: string): number | undefined {
    return this.#metadata.number(this.name(key));
  }

  string(key: string): string | undefined {
    return this.#metadata.string(this.name(key));
  }

  boolean(key: string): boolean | undefined {
    return this.#metadata.boolean(this.name(key));
  }

  /** Returns an array of numbers or booleans (as 0 and 1); undefined for a missing key or a single value. */
  numbers(key: string): number[] | undefined {
    return this.#metadata.isArray(this.name(key)) ? this.#metadata.numbers(this.name(key)) : undefined;
  }

  /** Returns a number that the computation needs. @throws DataError `E_DATA` if the key is missing. */
  requireNumber(key: string): number {
    return this.#metadata.required(this.name(key), this.number(key));
  }

  /**
   * Returns a number that some converters write once, and others once per layer.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if layers differ.
   */
  sameInAllLayers(key: string): number | undefined {
    const values = this.numbers(key);
    if (values === undefined) return this.number(key);
    const [first] = values;
    if (first === undefined || values.some((value) => value !== first))
      throw new UnsupportedError(`${this.label}: ${this.name(key)}: different values per layer are not supported`);
    return first;
  }

  /** Returns a number as {@link sameInAllLayers} does. @throws DataError `E_DATA` if the key is missing. */
  requireSameInAllLayers(key: string): number {
    return this.#metadata.required(this.name(key), this.sameInAllLayers(key));
  }

  /** Requires that a key is missing, 0 or an array of zeros. @throws UnsupportedError `E_UNSUPPORTED` naming another number. */
  refuseUnlessZero(key: string): void {
    const values = this.numbers(key) ?? [this.number(key) ?? 0];
    const nonZero = values.find((value) => value !== 0);
    if (nonZero !== undefined) throw new UnsupportedError(`${this.label}: ${this.name(key)}: ${nonZero} is not supported; only 0 is`);
  }
}

/** Compute units of an engine: one for all models, or one for small models and a device for large ones. */
import { ConfigError } from "../../../base/errors.ts";
import type { ComputeUnit } from "./compute-unit.ts";

/** Assigns each base model to a unit. */
export class ComputeUnits {
  readonly #main: ComputeUnit;
  readonly #startLarge: (() => Promise<ComputeUnit>) | null;
  readonly #onUnavailable: (error: Error) => void;
  readonly #started: ComputeUnit[];
  /** Units by identifier of the base model. */
  readonly #ofBase = new Map<string, ComputeUnit>();
  /** Unit of large models: null until the first of them is used; a promise of null if the unit cannot be started. */
  #large: Promise<ComputeUnit | null> | null = null;

  /**
   * @param main - Unit of small models, and of large models without a device.
   * @param startLarge - Starts the unit of large models, when the first of them is used; null = `main` serves them.
   * @param onUnavailable - Called at most once, if the unit of large models cannot be started and `main` serves them instead.
   */
  constructor(main: ComputeUnit, startLarge: (() => Promise<ComputeUnit>) | null, onUnavailable: (error: Error) => void) {
    this.#main = main;
    this.#startLarge = startLarge;
    this.#onUnavailable = onUnavailable;
    this.#started = [main];
  }

  /** Units in use. */
  get started(): readonly ComputeUnit[] {
    return this.#started;
  }

  /** Returns the unit of a base that was used before. */
  known(base: string): ComputeUnit | undefined {
    return this.#ofBase.get(base);
  }

  /** Returns the unit of a base, which never changes. @param isSmall - Called only for a base that was not used before. */
  async of(base: string, isSmall: () => Promise<boolean>): Promise<ComputeUnit> {
    const known = this.#ofBase.get(base);
    if (known !== undefined) return known;
    const chosen = await this.#choose(isSmall);
    // A concurrent call may have chosen meanwhile.
    const unit = this.#ofBase.get(base) ?? chosen;
    this.#ofBase.set(base, unit);
    return unit;
  }

  /** Chooses the unit of a model by its size; starts the unit of large models for the first of them. */
  async #choose(isSmall: () => Promise<boolean>): Promise<ComputeUnit> {
    if (this.#startLarge === null || (await isSmall())) return this.#main;
    this.#large ??= this.#open(this.#startLarge);
    return (await this.#large) ?? this.#main;
  }

  /** Closes all units; waits for one that is being started. */
  async close(): Promise<void> {
    await this.#large?.catch(() => null);
    await Promise.all(this.#started.map((unit) => unit.close()));
  }

  /** Opens the device of large models. Returns null without a device. @throws ConfigError `E_CONFIG` if the device lacks a feature. */
  async #open(start: () => Promise<ComputeUnit>): Promise<ComputeUnit | null> {
    const unit = await start().catch((error: unknown) => {
      if (error instanceof ConfigError) throw error;
      this.#onUnavailable(error instanceof Error ? error : new Error(String(error)));
      return null;
    });
    if (unit !== null) this.#started.push(unit);
    return unit;
  }
}

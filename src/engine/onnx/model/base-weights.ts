/** Weights of a base model. Their memory can be freed while nothing computes with them; the next use reads the files again. */
import { DataError } from "../../../base/errors.ts";
import { freeBuffers } from "../../../base/util/free-buffers.ts";
import type { ProcessorPrecision } from "../../engine-info.ts";
import type { ModelConfig } from "./config.ts";
import { baseLayout } from "./parameters.ts";
import { isLarge } from "./size.ts";
import { NO_WEIGHTS, readStoredWeights, readTransposedWeights, type StoredWeights } from "./stored-weights.ts";
import { weightsVersion } from "./weight-source.ts";

/** Function that reads freed weights again. */
type Reread = () => Promise<StoredWeights>;

/** Weights of a base model, in memory or freed. */
export class BaseWeights {
  /** No weights. */
  static readonly none = BaseWeights.kept(NO_WEIGHTS);

  /** Null for weights that are never freed. */
  readonly #reread: Reread | null;
  /** Weights in memory, or being read; null while they are freed. */
  #stored: Promise<StoredWeights> | null;
  /** Number of computations in progress. */
  #users = 0;

  private constructor(stored: StoredWeights, reread: Reread | null) {
    this.#stored = Promise.resolve(stored);
    this.#reread = reread;
  }

  /** Returns weights that stay in memory. */
  static kept(stored: StoredWeights): BaseWeights {
    return new BaseWeights(stored, null);
  }

  /**
   * Reads the weights of a base model. Only float32 weights of a large model can be freed: their matrices stay in the layout of the file, so
   * that reading them again needs no conversion. All other weights are kept, see {@link readStoredWeights}.
   */
  static async read(directory: string, config: ModelConfig, precision: ProcessorPrecision): Promise<BaseWeights> {
    const layout = baseLayout(config);
    if (!isLarge(config) || precision !== "float32") return BaseWeights.kept(await readStoredWeights(directory, layout, precision));
    const version = await weightsVersion(directory);
    return new BaseWeights(await readTransposedWeights(directory, layout, false), async () => {
      if ((await weightsVersion(directory)) !== version)
        throw new DataError(
          `Expected the weight files of a base model to stay as they are while it is in use, they were replaced: restart the service to use the new ones`,
        );
      return readTransposedWeights(directory, layout, true);
    });
  }

  /** Whether {@link free} frees the memory. */
  get canBeFreed(): boolean {
    return this.#reread !== null;
  }

  /** Calls `compute` with the weights, and reads them before if they were freed. They are not freed during the call. */
  async use<T>(compute: (stored: StoredWeights) => T | Promise<T>): Promise<T> {
    this.#users++;
    try {
      this.#stored ??= this.#reread!().catch((error: unknown) => {
        this.#stored = null;
        throw error;
      });
      return await compute(await this.#stored);
    } finally {
      this.#users--;
    }
  }

  /** Frees the memory, unless something computes with the weights or they can only be kept. */
  free(): void {
    if (this.#reread === null || this.#users > 0) return;
    const stored = this.#stored;
    this.#stored = null;
    void stored?.then(({ flat }) => freeBuffers([flat.buffer as ArrayBuffer]));
  }
}

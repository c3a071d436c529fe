/** Base models in the memory of a device (GPU), shared by the trainer and the sampler of the device. */
import { DataError } from "../../../base/errors.ts";
import type { DevicePrecision } from "../../engine-info.ts";
import type { StoredFormats } from "../graph/lower.ts";
import { firstInfinite, MAX_FLOAT16, toFloat16 } from "../../../base/util/float16.ts";
import { type Lease, Leases } from "../../../base/util/leases.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import { DeviceVector } from "../runtime/device-vector.ts";
import { type ModelConfig, readModelConfig } from "./config.ts";
import { baseLayout, cutLayout, cutParameter, type Layout, type Parameter, tensorAt, viewOf } from "./parameters.ts";
import { rotaryTables } from "./rope.ts";
import { freshWeights, openParameters } from "./weights.ts";

/** Weights in a device's memory, with the rotary tables, each `[positions, r/2]`. */
export interface DeviceBase {
  readonly config: ModelConfig;
  /** Layout of the weights, with large parameters in pieces: see {@link cutLayout}. */
  readonly layout: Layout;
  /** Type in which matrices and embeddings are stored; gains and biases are float32. */
  readonly precision: DevicePrecision;
  readonly weights: DeviceVector;
  readonly rotary: DeviceVector;
}

/** Options of a lease. */
export interface BaseLeaseOptions {
  /** Seed of random weights. @default the weights of the directory */
  readonly freshSeed?: number | undefined;
  /** Whether all parameters are trained, which needs float32. @default false */
  readonly isTrained?: boolean | undefined;
}

/** Returns the graph inputs that are stored in another format than float32 with a weight precision: matrices and embeddings. */
export function storedInputs({ parameters }: Layout, precision: DevicePrecision): StoredFormats {
  return new Map(precision === "float32" ? [] : parameters.filter(isStoredAsFloat16).map(({ name }) => [name, "float16"]));
}

/** Whether the precision float16 applies to a parameter; gains and biases stay float32. */
function isStoredAsFloat16({ kind }: Parameter): boolean {
  return kind === "matrix" || kind === "embedding";
}

/** Base models and rotary tables of a device, each loaded once and kept while it is leased. */
export class DeviceBases {
  readonly #memory: DeviceMemory;
  readonly #positions: (config: ModelConfig) => number;
  readonly #precision: DevicePrecision;
  /** Rotary tables by the configuration of their model, as JSON. */
  readonly #rotary = new Leases<string, DeviceVector>({ dispose: (tables) => tables.release() });
  /** Base models by directory, seed and precision, as JSON. */
  readonly #bases = new Leases<string, DeviceBase & { readonly release: () => void }>({ dispose: (base) => base.release() });

  /**
   * @param positions - Returns the number of positions in the rotary tables of a model.
   * @param precision - Type in which weights that are not trained are stored. @default "float32"
   */
  constructor(memory: DeviceMemory, positions: (config: ModelConfig) => number, precision: DevicePrecision = "float32") {
    this.#memory = memory;
    this.#positions = positions;
    this.#precision = precision;
  }

  /**
   * Leases the base model of a directory.
   *
   * @throws DataError `E_DATA` naming the tensor if a weight is beyond the range of its type.
   */
  lease(directory: string, { freshSeed, isTrained = false }: BaseLeaseOptions = {}): Promise<Lease<DeviceBase>> {
    const precision = isTrained ? "float32" : this.#precision;
    return this.#bases.lease(JSON.stringify([directory, freshSeed, precision]), async () => {
      const config = await readModelConfig(directory);
      const wholeLayout = baseLayout(config);
      const layout = cutLayout(wholeLayout, this.#memory.maxPieceBytes);
      const rotary = await this.rotary(config);
      try {
        const weights = await this.#load(directory, config, wholeLayout, precision, freshSeed);
        const release = () => {
          weights.release();
          rotary.release();
        };
        return { config, layout, precision, weights, rotary: rotary.value, release };
      } catch (error) {
        rotary.release();
        throw error;
      }
    });
  }

  /** Copies weights to the device, one parameter at a time. Files have whole parameters, which are cut on the way to the device. */
  async #load(
    directory: string,
    config: ModelConfig,
    layout: Layout,
    precision: DevicePrecision,
    freshSeed: number | undefined,
  ): Promise<DeviceVector> {
    const isFresh = freshSeed !== undefined;
    const { read, close } = isFresh ? freshParameters(config, layout, freshSeed) : await openParameters(directory, layout);
    try {
      const { maxPieceBytes } = this.#memory;
      return await DeviceVector.load(
        this.#memory,
        layout.parameters,
        async (parameter) => {
          const values = await read(parameter);
          return precision === "float16" && isStoredAsFloat16(parameter) ? inFloat16(values, layout, parameter) : values;
        },
        (parameter) => cutParameter(parameter, maxPieceBytes),
      );
    } finally {
      await close();
    }
  }

  /** Leases the rotary tables of a model, one part of the vector per table. */
  rotary(config: ModelConfig): Promise<Lease<DeviceVector>> {
    return this.#rotary.lease(JSON.stringify(config), () => {
      const contextLength = this.#positions(config);
      const tables = rotaryTables({ ...config, contextLength });
      const names = Object.keys(tables);
      // All tables have the same size.
      const size = tables.cos.length;
      const pairs = config.rotarySize / 2;
      const joined = new Float32Array(names.length * size);
      for (const [index, table] of Object.values(tables).entries()) joined.set(table, index * size);
      const parts = names.map((name, index) => ({ name, offset: index * size, size, shape: [size / pairs, pairs] }));
      return DeviceVector.upload(this.#memory, parts, joined);
    });
  }
}

/** Returns random weights in the form of {@link openParameters}. */
function freshParameters(config: ModelConfig, layout: Layout, seed: number): Awaited<ReturnType<typeof openParameters>> {
  const flat = freshWeights(config, layout, seed);
  return { read: (parameter) => Promise.resolve(viewOf(flat, parameter)), close: () => Promise.resolve() };
}

/** Returns the values of a parameter as float16. */
function inFloat16(values: Float32Array, layout: Layout, parameter: Parameter): Uint16Array {
  const halves = toFloat16(values);
  const overflow = firstInfinite(halves);
  if (overflow < 0) return halves;
  throw new DataError(
    `Expected weights of at most ${MAX_FLOAT16}, the largest float16, got ${values[overflow]} in the tensor "${tensorAt(layout, parameter.offset + overflow)}": store the weights in float32, with the weight precision "float32"`,
  );
}

/** Base models in a device's memory, shared by the trainer and the sampler of the device. */
import { type Lease, Leases } from "../../../util/leases.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import { DeviceVector } from "../runtime/device-vector.ts";
import { type ModelConfig, readModelConfig } from "./config.ts";
import { baseLayout, cutLayout, cutParameter, type Layout } from "./parameters.ts";
import { rotaryTables } from "./rope.ts";
import { freshWeights, openParameters } from "./weights.ts";

/** Weights in a device's memory, with the rotary tables `cos` and `sin`, `[positions, headSize / 2]`. */
export interface DeviceBase {
  readonly config: ModelConfig;
  /** Layout of the weights, with large parameters in pieces: see {@link cutLayout}. */
  readonly layout: Layout;
  readonly weights: DeviceVector;
  readonly rotary: DeviceVector;
}

/** Base models and rotary tables of a device, each loaded once and kept while it is leased. */
export class DeviceBases {
  readonly #memory: DeviceMemory;
  readonly #positions: (config: ModelConfig) => number;
  readonly #rotary = new Leases<string, DeviceVector>({ dispose: (tables) => tables.release() });
  readonly #bases = new Leases<string, DeviceBase & { readonly release: () => void }>({ dispose: (base) => base.release() });

  /** @param positions - Returns the number of positions of the rotary tables. */
  constructor(memory: DeviceMemory, positions: (config: ModelConfig) => number) {
    this.#memory = memory;
    this.#positions = positions;
  }

  /**
   * Leases the base model of a directory.
   *
   * @param freshSeed - Seed of random weights. @default the weights of the directory
   */
  lease(directory: string, freshSeed?: number): Promise<Lease<DeviceBase>> {
    return this.#bases.lease(freshSeed === undefined ? directory : `${directory}#${freshSeed}`, async () => {
      const config = await readModelConfig(directory);
      const whole = baseLayout(config);
      const layout = cutLayout(whole, this.#memory.maxPieceBytes);
      const rotary = await this.rotary(config);
      try {
        const weights =
          freshSeed === undefined
            ? await this.#read(directory, whole)
            : await DeviceVector.upload(this.#memory, layout.parameters, freshWeights(config, whole, freshSeed));
        const release = () => {
          weights.release();
          rotary.release();
        };
        return { config, layout, weights, rotary: rotary.value, release };
      } catch (error) {
        rotary.release();
        throw error;
      }
    });
  }

  /** Copies the weights of a directory to the device, one parameter at a time. */
  async #read(directory: string, layout: Layout): Promise<DeviceVector> {
    const { read, close } = await openParameters(directory, layout);
    try {
      const { maxPieceBytes } = this.#memory;
      return await DeviceVector.load(this.#memory, layout.parameters, read, (parameter) => cutParameter(parameter, maxPieceBytes));
    } finally {
      await close();
    }
  }

  /** Leases the rotary tables of a model. */
  rotary(config: ModelConfig): Promise<Lease<DeviceVector>> {
    return this.#rotary.lease(JSON.stringify(config), () => {
      const contextLength = this.#positions(config);
      const { cos, sin } = rotaryTables({ ...config, contextLength });
      const both = new Float32Array(2 * cos.length);
      both.set(cos);
      both.set(sin, cos.length);
      const part = { size: cos.length, shape: [contextLength, config.headSize / 2] };
      const parts = [
        { name: "cos", offset: 0, ...part },
        { name: "sin", offset: cos.length, ...part },
      ];
      return DeviceVector.upload(this.#memory, parts, both);
    });
  }
}

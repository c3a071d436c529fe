/** Base models in a device's memory, shared by the trainer and the sampler of the device. */
import { type Lease, Leases } from "../../../util/leases.ts";
import type { DeviceMemory } from "../runtime/device-memory.ts";
import { DeviceVector } from "../runtime/device-vector.ts";
import { type ModelConfig, readModelConfig } from "./config.ts";
import { baseLayout, type Layout } from "./parameters.ts";
import { rotaryTables } from "./rope.ts";
import { freshWeights, readBaseWeights } from "./weights.ts";

/** Base model in a device's memory. */
export interface DeviceBase {
  readonly config: ModelConfig;
  readonly layout: Layout;
  readonly weights: DeviceVector;
  /** Rotary tables `cos` and `sin`, `[positions, headSize / 2]`. */
  readonly rotary: DeviceVector;
}

/** Base models of a device, each loaded once and kept while it is leased. */
export class DeviceBases {
  readonly #memory: DeviceMemory;
  readonly #bases = new Leases<string, DeviceBase>({
    dispose: ({ weights, rotary }) => {
      weights.release();
      rotary.release();
    },
  });

  constructor(memory: DeviceMemory) {
    this.#memory = memory;
  }

  /**
   * Leases the base model of a directory.
   *
   * @param positions - Returns the number of positions of the rotary tables.
   * @param freshSeed - Seed of random weights; undefined = the weights of the directory.
   */
  lease(directory: string, positions: (config: ModelConfig) => number, freshSeed?: number): Promise<Lease<DeviceBase>> {
    return this.#bases.lease(freshSeed === undefined ? directory : `${directory}#${freshSeed}`, async () => {
      const config = await readModelConfig(directory);
      const layout = baseLayout(config);
      const flat = freshSeed === undefined ? await readBaseWeights(directory, layout) : freshWeights(config, layout, freshSeed);
      const weights = await DeviceVector.upload(this.#memory, layout.parameters, flat);
      const { cos, sin } = rotaryTables({ ...config, contextLength: positions(config) });
      const shape = [positions(config), config.headSize / 2];
      const tables = new Float32Array(2 * cos.length);
      tables.set(cos);
      tables.set(sin, cos.length);
      const rotary = await DeviceVector.upload(
        this.#memory,
        [
          { name: "cos", offset: 0, size: cos.length, shape },
          { name: "sin", offset: cos.length, size: sin.length, shape },
        ],
        tables,
      );
      return { config, layout, weights, rotary };
    });
  }
}

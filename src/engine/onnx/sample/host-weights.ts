/** Weights of policies in the process's memory. */
import { Leases } from "../../../base/util/leases.ts";
import type { ProcessorPrecision } from "../../engine-info.ts";
import { BaseWeights } from "../model/base-weights.ts";
import type { ModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, baseLayout } from "../model/parameters.ts";
import { type RotaryTables, rotaryTablesInTurns } from "../model/rope.ts";
import { isLarge } from "../model/size.ts";
import { readAdapterOrWeights } from "../model/state.ts";
import { float32Weights, type StoredWeights, withoutMatrices } from "../model/stored-weights.ts";
import type { LoadedAdapter } from "./adapters.ts";
import type { PlacedWeights, WeightsSource } from "./place.ts";
import { paddedLength } from "./prefill.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/** Trained weights in the process's memory. */
export interface HostTrained {
  readonly flat: Float32Array;
  readonly lora: Adapter | null;
}

/** Weights of a policy, with the rotary tables of its model. */
export interface HostPolicyWeights extends PlacedWeights {
  /** Weights that runs feed: all, or, of a model with prepared matrices, at least those that no product reads. */
  readonly fed: StoredWeights;
  /** Weights that programs hold as prepared matrices; null if runs feed them. */
  readonly matrices: BaseWeights | null;
  readonly rotary: RotaryTables;
}

/**
 * Returns the source of weights in the process's memory. Other events of the thread run while it reads and rearranges them.
 *
 * @param onUnused - Called with weights that no policy uses any more. @default no callback
 * @param precision - Type in which base models are stored. @default "float32"
 */
export function hostWeights(
  onUnused: (weights: HostPolicyWeights) => void = () => {},
  precision: ProcessorPrecision = "float32",
): WeightsSource<HostTrained, HostPolicyWeights, LoadedAdapter> {
  const bases = new Leases<string, HostPolicyWeights>({ dispose: onUnused });
  const tables = new WeakMap<ModelConfig, Promise<RotaryTables>>();
  /** Returns the rotary tables of a configuration. The padding of a prompt's last piece may reach beyond the context. */
  const rotaryOf = (config: ModelConfig): Promise<RotaryTables> =>
    getOrInsert(tables, config, () => rotaryTablesInTurns({ ...config, contextLength: paddedLength(config.contextLength) }));
  return {
    base: (directory, config) =>
      bases.lease(directory, async () => {
        const weights = await BaseWeights.read(directory, config, precision);
        // If the memory is freed, only what runs feed stays in a copy.
        const fed = await weights.use((stored) => (weights.canBeFreed ? withoutMatrices(stored) : stored));
        const isPrepared = isLarge(config) || fed.blocks.size > 0;
        return { config, fed, matrices: isPrepared ? weights : null, rotary: await rotaryOf(config) };
      }),
    async own(_directory, config, { flat }) {
      const fed = float32Weights(baseLayout(config), flat);
      return { config, fed, matrices: isLarge(config) ? BaseWeights.kept(fed) : null, rotary: await rotaryOf(config) };
    },
    adapter: (config, { flat }, lora) => ({ ...lora, flat, layout: adapterLayout(config, lora.rank) }),
    read: readAdapterOrWeights,
    free: (held) => {
      if ("rotary" in held) onUnused(held);
    },
    discard: () => {},
  };
}

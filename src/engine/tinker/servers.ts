/** What sets servers of the protocol apart where the protocol leaves it open. */
import type { Reduction } from "./datum.ts";

/** A kind of server. */
export type TinkerServer = "tinker" | "skyrl";

/** How a kind of server behaves. */
export interface ServerTraits {
  readonly reduction: Reduction;
  /** Whether a step clips the gradient; where not, it ignores what it is asked. */
  readonly clipsGradients: boolean;
  /**
   * `snapshot`: weights saved for sampling are sampled from as they are. `copy`: sampling from saved weights loads them over those
   * of the model they were saved from, so every policy needs a model of its own that nobody trains.
   */
  readonly policies: "snapshot" | "copy";
}

/**
 * The servers that are known.
 *
 * @source `tinker`: the documentation of the hosted service. `skyrl`: SkyRL's JAX backend, `skyrl/backends/jax.py`: the loss of a
 *   sequence over the sum of its mask, gradients over their count; `optim_step` has no clipping; `load_sampler_weights`.
 */
export const SERVERS: Readonly<Record<TinkerServer, ServerTraits>> = {
  tinker: { reduction: "sum", clipsGradients: true, policies: "snapshot" },
  skyrl: { reduction: "sequence-mean", clipsGradients: false, policies: "copy" },
};

/** The kind of a server by what it calls itself at its root. */
export function serverNamed(rootName: string | null): TinkerServer {
  return rootName === "Tinker API Mock" ? "skyrl" : "tinker";
}

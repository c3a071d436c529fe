/** Behavior that the Tinker protocol leaves open and that differs between servers. */
import type { GradientReduction } from "./datum.ts";

/** Kind of server: the hosted service (`tinker`) or SkyRL (`skyrl`). */
export type TinkerServer = "tinker" | "skyrl";

/** Behavior of one kind of server. */
export interface ServerTraits {
  readonly reduction: GradientReduction;
  /** Whether an optimizer step clips the gradient; if not, the server ignores the clipping parameter. */
  readonly clipsGradients: boolean;
  /**
   * Storage of policies. `snapshot`: the server samples from saved weights directly. `copy`: sampling from saved weights overwrites the
   * weights of the model that they were saved from, so every policy needs its own model that is not trained.
   */
  readonly policies: "snapshot" | "copy";
}

/**
 * Behavior of the known servers.
 *
 * @source `tinker`: the documentation of the hosted service. `skyrl`: SkyRL's JAX backend, `skyrl/backends/jax.py`: the loss of a
 *   sequence over the sum of its mask, gradients over their count; `optim_step` has no clipping; `load_sampler_weights`.
 */
export const SERVERS: Readonly<Record<TinkerServer, ServerTraits>> = {
  tinker: { reduction: "sum", clipsGradients: true, policies: "snapshot" },
  skyrl: { reduction: "sequence-mean", clipsGradients: false, policies: "copy" },
};

/** Returns the kind of a server from the `name` at its root. */
export function serverNamed(rootName: string | null): TinkerServer {
  return rootName === "Tinker API Mock" ? "skyrl" : "tinker";
}

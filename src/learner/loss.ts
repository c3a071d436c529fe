/** Which loss, and what it is for one token. */

import { ArgumentError } from "../errors.ts";
import type { RlConfig } from "../schema/index.ts";
import type { LossSpec, PolicyLoss } from "./types.ts";

/**
 * The policy loss a configuration asks for. CISPO clips at ε = 1 and 4 (the range [0, 5]); PPO at 0.2 on both sides.
 *
 * @throws ArgumentError `E_ARGUMENT` when `ppo` and `loss_fn` contradict each other.
 */
export function resolveLoss(config: Pick<RlConfig, "ppo" | "loss_fn" | "epsilon" | "epsilon_high"> = {}): PolicyLoss {
  const { ppo, loss_fn: named } = config;
  if (typeof ppo === "boolean" && typeof named === "string" && ppo !== (named === "ppo")) {
    throw new ArgumentError(
      `Expected \`ppo\` and \`loss_fn\` to agree, got \`ppo: ${ppo}\` and \`loss_fn: "${named}"\`. Set one of them.`,
      {
        param: "experimental_config.loss_fn",
      },
    );
  }
  const kind = named ?? (ppo === true ? "ppo" : "cispo");
  const epsilon = config.epsilon ?? (kind === "ppo" ? 0.2 : 1);
  return { kind, epsilon, epsilonHigh: config.epsilon_high ?? (kind === "ppo" ? epsilon : 4) };
}

/** One token, as a loss sees it. */
export interface TokenLossInput {
  /** Log-probability under the weights being trained. */
  readonly newLogprob: number;
  /** Log-probability at sampling time; NaN where unknown, then the ratio is 1. Unused by cross-entropy. */
  readonly oldLogprob: number;
  /** Unused by cross-entropy. */
  readonly advantage: number;
}

/**
 * The loss of one token and its derivative by the new log-probability, in float64: the reference that engines are tested
 * against. With `n` new, `o` old, `ρ = exp(n − o)`, `A` the advantage, and `clip` to `[1 − ε, 1 + ε_high]`:
 *
 * - `cross-entropy`: `−n`;
 * - `cispo`: `−clip(ρ)·A·n`, where the clipped ratio counts as a constant (MiniMax-M1, arXiv:2506.13585);
 * - `ppo`: `−min(ρ·A, clip(ρ)·A)` (arXiv:1707.06347).
 */
export function tokenLoss(spec: LossSpec, input: TokenLossInput): { readonly value: number; readonly derivative: number } {
  const { newLogprob, oldLogprob, advantage } = input;
  if (spec.kind === "cross-entropy") return { value: -newLogprob, derivative: -1 };
  const ratio = Number.isNaN(oldLogprob) ? 1 : Math.exp(newLogprob - oldLogprob);
  const clipped = Math.min(Math.max(ratio, 1 - spec.epsilon), 1 + spec.epsilonHigh);
  if (spec.kind === "cispo") return { value: -clipped * advantage * newLogprob, derivative: -clipped * advantage };
  // Where clipping wins, the loss no longer depends on the new log-probability.
  return ratio * advantage <= clipped * advantage
    ? { value: -ratio * advantage, derivative: -ratio * advantage }
    : { value: -clipped * advantage, derivative: 0 };
}

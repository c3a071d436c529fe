/** Which loss a configuration asks for. */

import { ArgumentError } from "../errors.ts";
import type { RlConfig } from "../schema/index.ts";
import type { PolicyLoss } from "./types.ts";

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

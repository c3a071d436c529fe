/** Selection of the policy loss from a configuration. */

import { ArgumentError } from "../base/errors.ts";
import type { RlConfig } from "../base/schema/index.ts";
import type { PolicyLoss } from "../base/training-rows.ts";

/**
 * Returns the policy loss that a configuration selects. Default loss: CISPO. Default clip bounds: ε = 1 below and 4 above for CISPO (the
 * range [0, 5]), 0.2 on both sides for PPO. The loss has an `entropyCoefficient` only if the configuration has one above 0.
 *
 * @param config - RL configuration; absent settings have their defaults.
 * @throws ArgumentError `E_ARGUMENT` if `ppo` and `loss_fn`, two names of one setting, contradict each other.
 */
export function resolveLoss(config: Pick<RlConfig, "ppo" | "loss_fn" | "epsilon" | "epsilon_high" | "entropy_coef"> = {}): PolicyLoss {
  const { ppo, loss_fn: lossName } = config;
  if (typeof ppo === "boolean" && typeof lossName === "string" && ppo !== (lossName === "ppo")) {
    throw new ArgumentError(
      `Expected \`ppo\` and \`loss_fn\` to agree, got \`ppo: ${ppo}\` and \`loss_fn: "${lossName}"\`. Set one of them.`,
      { param: "experimental_config.loss_fn" },
    );
  }
  const kind = lossName ?? (ppo === true ? "ppo" : "cispo");
  const epsilon = config.epsilon ?? (kind === "ppo" ? 0.2 : 1);
  const epsilonHigh = config.epsilon_high ?? (kind === "ppo" ? epsilon : 4);
  const entropyCoefficient = config.entropy_coef ?? 0;
  return { kind, epsilon, epsilonHigh, ...(entropyCoefficient > 0 ? { entropyCoefficient } : {}) };
}

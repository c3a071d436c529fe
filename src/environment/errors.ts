import { WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";

/**
 * A reward function threw, or did not return a finite number or a boolean. Only the scored rollout fails, recorded as data; the other
 * rollouts of the group continue. `cause` is the value thrown by the reward.
 */
export class RewardError extends WhetstoneError {
  readonly code = "E_REWARD";

  constructor(message: string, options: WhetstoneErrorOptions = {}) {
    super(message, options);
    // A recorded exception keeps only the stack, and the relevant location is inside the reward function.
    if (options.cause instanceof Error) this.stack = `${this.stack}\n[cause] ${options.cause.stack}`;
  }
}

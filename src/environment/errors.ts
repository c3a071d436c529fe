import { WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";

/** A reward threw, or gave no finite number. Fails the rollout it scored, as data; its siblings go on. `cause` is what it threw. */
export class RewardError extends WhetstoneError {
  readonly code = "E_REWARD";

  constructor(message: string, options: WhetstoneErrorOptions = {}) {
    super(message, options);
    // A recorded exception keeps the stack alone, and the place to look at is in the reward.
    if (options.cause instanceof Error) this.stack = `${this.stack}\n[cause] ${options.cause.stack}`;
  }
}

/** Error that ends a run of rollouts. */
import { WhetstoneError, type WhetstoneErrorOptions } from "../../base/errors.ts";
import type { RolloutException } from "../../base/schema/index.ts";

/**
 * Error for more failed rollouts than `maxExceptions` allows. Thrown when the other rollouts have been aborted and have settled; `cause` is
 * the last failure.
 *
 * @example
 * ```ts
 * import { evaluate } from "whetstone/environment";
 *
 * try {
 *   await evaluate(environment, policy, { samples: 8, maxExceptions: 0.05 });
 * } catch (error) {
 *   if (error instanceof TooManyExceptionsError) console.log(error.exceptions.map(({ message }) => message));
 * }
 * ```
 */
export class TooManyExceptionsError extends WhetstoneError {
  readonly code = "E_TOO_MANY_EXCEPTIONS";
  /** All failures, including the one that exceeded the limit. */
  readonly exceptions: readonly RolloutException[];

  /**
   * Created by the runner.
   *
   * @internal
   */
  constructor(message: string, options: WhetstoneErrorOptions & { readonly exceptions: readonly RolloutException[] }) {
    super(message, options);
    this.exceptions = options.exceptions;
  }
}

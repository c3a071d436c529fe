/** Error of an environment server, for both protocols. */
import { WhetstoneError, type WhetstoneErrorOptions } from "../../../base/errors.ts";

/**
 * An environment server answered with an error. The rollout that made the request fails; the other rollouts continue. Other failures have
 * other classes: a server without a free session is an `OverloadedError`, so that the run slows down, and a lost connection a
 * `ConnectionError`.
 *
 * @example
 * ```ts
 * const isBug = (error: unknown) => error instanceof EnvironmentError && error.reason === "EXECUTION_ERROR";
 * ```
 */
export class EnvironmentError extends WhetstoneError {
  readonly code = "E_ENVIRONMENT";
  /**
   * Error code of the protocol: of OpenEnv, such as `EXECUTION_ERROR`; of the Open Reward Standard the `reason` of a failed call, such as
   * `not_found`, or `http_<status>`.
   */
  readonly reason: string;

  /**
   * Created by the clients.
   *
   * @internal
   */
  constructor(message: string, options: WhetstoneErrorOptions & { readonly reason: string }) {
    super(message, options);
    this.reason = options.reason;
  }
}

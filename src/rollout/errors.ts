import { WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";
import type { RolloutException } from "../schema/index.ts";

/** More rollouts failed than allowed. Raised after the other rollouts were aborted and have settled; `cause` is the last failure. */
export class TooManyExceptionsError extends WhetstoneError {
  readonly code = "E_TOO_MANY_EXCEPTIONS";
  /** All failures up to the one over the budget. */
  readonly exceptions: readonly RolloutException[];

  constructor(message: string, options: WhetstoneErrorOptions & { readonly exceptions: readonly RolloutException[] }) {
    super(message, options);
    this.exceptions = options.exceptions;
  }
}

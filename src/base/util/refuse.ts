import { ArgumentError, type WhetstoneError, type WhetstoneErrorOptions } from "../errors.ts";

/**
 * Throws the error of an option with an invalid value.
 *
 * @param expected - Description of the valid values, after "to be".
 * @param ErrorClass - Class of the error. @default ArgumentError
 * @throws ArgumentError `E_ARGUMENT`, or an error of `ErrorClass`, with the message "Expected `param` to be …, got `…`".
 * @example
 * ```ts
 * if (!Number.isFinite(weight)) refuse("weight", "a finite number", weight);
 * ```
 */
export function refuse(
  param: string,
  expected: string,
  got: unknown,
  ErrorClass: new (message: string, options: WhetstoneErrorOptions) => WhetstoneError = ArgumentError,
): never {
  throw new ErrorClass(`Expected \`${param}\` to be ${expected}, got \`${String(got)}\``, { param });
}

/** Checks an integer. @throws ArgumentError `E_ARGUMENT` if it is not a safe integer of at least `min`. */
export function checkInteger(param: string, value: number, min: number): void {
  if (!(Number.isSafeInteger(value) && value >= min)) refuse(param, `an integer of at least ${min}`, value);
}

/** Conversion of failures to load a base model. */
import { BaseModelError, NotFoundError, WhetstoneError, type ErrorCode } from "../base/errors.ts";
import { reasonOf } from "../base/util/regular-file.ts";

/** Codes of errors about the files of a base model. Others, such as a worker that died, say nothing about the model. */
const FILE_ERRORS: readonly ErrorCode[] = ["E_NOT_FOUND", "E_DATA", "E_UNSUPPORTED", "E_TOO_LARGE"];

/** Codes of the operating system for files that are missing or cannot be read. */
const SYSTEM_CODES = ["ENOENT", "ENOTDIR", "EISDIR", "EACCES", "EPERM", "ELOOP", "ENAMETOOLONG", "EIO"];

/**
 * Returns the error of a base model that cannot be loaded; any error that has another cause is returned unchanged.
 *
 * @param base - Name of the base model.
 * @param error - Error of reading its configuration, tokenizer, template or weights.
 * @param param - Option or field that named the base model.
 */
export function baseFailure(base: string, error: unknown, param = "base_model"): unknown {
  const reason = reasonOfFailure(error);
  if (reason === null) return error;
  return new BaseModelError(`The base model '${base}' cannot be loaded: ${reason}`, { cause: error, param });
}

/** Converts the error of finding a base model by {@link baseFailure}, except that a base model that does not exist stays `E_NOT_FOUND`. */
export function unresolvedBase(base: string, error: unknown): unknown {
  return error instanceof NotFoundError ? error : baseFailure(base, error);
}

/** Calls `load`, and converts its error by {@link baseFailure}. */
export async function loadingBase<T>(base: string, load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch (error) {
    throw baseFailure(base, error);
  }
}

/** Returns the problem of the model's files; null if the error has another cause, such as one that can be retried. */
function reasonOfFailure(error: unknown): string | null {
  if (WhetstoneError.isInstance(error)) {
    const isOfFile = FILE_ERRORS.includes(error.code) && !error.retryable;
    return isOfFile ? error.message : null;
  }
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" && SYSTEM_CODES.includes(code) ? reasonOf(error) : null;
}

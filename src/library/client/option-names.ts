/** Names of options in errors: the service and the schemas name wire fields, the caller wrote options in camelCase. */
import { ArgumentError } from "../../base/errors.ts";
import { camelCase } from "../../base/util/letter-case.ts";
import { HttpError } from "./errors.ts";

/** Options of a call by the paths of their fields on the wire: `experimental_config.learning_rate` → `learningRate`. */
export type OptionNames = ReadonlyMap<string, string>;

/** Returns the options for the fields of `schema`; `prefix` is the path of the object that contains the fields, with a dot at its end. */
export function optionNames(schema: { readonly shape: object }, prefix = ""): OptionNames {
  return new Map(Object.keys(schema.shape).map((key) => [`${prefix}${key}`, camelCase(key)]));
}

/**
 * Runs a call and renames the wire fields in its errors, in `param` and in the message, to the options that the caller wrote.
 *
 * @throws HttpError `E_HTTP` with renamed fields for a status 400 or 422; ArgumentError `E_ARGUMENT` likewise; other errors unchanged.
 */
export async function withOptionNames<T>(names: OptionNames, call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw withRenamedFields(error, names);
  }
}

/**
 * Replaces wire paths by option names in a text. Fields without an underscore are replaced only if their whole path is given: such a name
 * may also be an ordinary word.
 */
export function withNames(text: string, names: OptionNames): string {
  return text.replaceAll(/(?<![\w.])[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*(?!\w)/gu, (path) => optionOf(path, names) ?? path);
}

/** Returns an error of the service or of validation with renamed fields; any other error unchanged. */
function withRenamedFields(error: unknown, names: OptionNames): unknown {
  if (error instanceof ArgumentError)
    return new ArgumentError(withNames(error.message, names), { param: paramOf(error.param, names), cause: error.cause });
  if (!(error instanceof HttpError) || (error.status !== 400 && error.status !== 422)) return error;
  const { status, type, requestId, retryAfterMs, serviceCode, retryable } = error;
  const reason = error.reason === null ? null : withNames(error.reason, names);
  const facts = { status, type, requestId, retryAfterMs, serviceCode, retryable, reason };
  return new HttpError(withNames(error.message, names), { ...facts, param: paramOf(error.param, names), cause: error });
}

/** Returns the option of an error's `param`, or the `param` itself if it is no field. */
function paramOf(param: string | null, names: OptionNames): string | undefined {
  return param === null ? undefined : (optionOf(param, names) ?? param);
}

/**
 * Returns the option of a wire path, or of a field's name alone if it contains an underscore; undefined for any other text. Components of the
 * path below the field are kept: `config.lora.rank` → `lora.rank`.
 */
function optionOf(path: string, names: OptionNames): string | undefined {
  const parts = path.split(".");
  // The longest known beginning of the path is the field.
  for (let count = parts.length; count > 0; count--) {
    const field = parts.slice(0, count).join(".");
    const option = names.get(field) ?? (field.includes("_") ? optionOfName(field, names) : undefined);
    if (option !== undefined) return [option, ...parts.slice(count)].join(".");
  }
  return undefined;
}

/** Returns the option of the field with this name in any object; undefined without one. */
function optionOfName(name: string, names: OptionNames): string | undefined {
  for (const [path, option] of names) if (path.endsWith(`.${name}`)) return option;
  return undefined;
}

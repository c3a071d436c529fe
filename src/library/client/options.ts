/** Conversion of options to request bodies, and validation of answers. */
import type { z } from "zod";
import { ArgumentError } from "../../base/errors.ts";
import { ProtocolError } from "./errors.ts";
import { camelCase } from "../../base/util/letter-case.ts";
import { optionNames, withNames } from "./option-names.ts";

/**
 * Converts camelCase options to a wire body of `schema`. Undefined options are omitted.
 *
 * @throws ArgumentError `E_ARGUMENT` for a name that the schema lacks (the message lists the valid names) or a value outside its bounds.
 */
export function optionsToWire<T>(schema: z.ZodType<T> & { readonly shape: object }, options: object): T {
  /** Keys of the schema by option name. */
  const keys = new Map(Object.keys(schema.shape).map((key) => [camelCase(key), key]));
  const body: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    const key = keys.get(name);
    if (key === undefined) {
      throw new ArgumentError(`Unknown option \`${name}\`; expected one of ${[...keys.keys()].sort().join(", ")}`, { param: name });
    }
    body[key] = value;
  }
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const name = camelCase(String(issue?.path[0] ?? ""));
  throw new ArgumentError(`Option \`${name}\`: ${withNames(issue?.message ?? "invalid", optionNames(schema))}`, { param: name });
}

/**
 * Validates a 2xx response.
 *
 * @param what - Noun for the expected response in the error message, such as `checkpoint`.
 * @throws {@link ProtocolError} `E_PROTOCOL` if the response does not match `schema`.
 */
export function parseResponse<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new ProtocolError(
    `The service's answer is no ${what}; at \`${issue?.path.join(".") || "(root)"}\`: ${issue?.message ?? "invalid"}`,
  );
}

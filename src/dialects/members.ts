/** Request bodies as members of a JSON object, and the errors and helpers that all translations of requests share. */
import type { z } from "zod";
import { ArgumentError, UnsupportedError } from "../base/errors.ts";
import { shown } from "../base/util/shown.ts";

/** Members of a JSON object. 64-bit integers beyond 2^53 are bigint. */
export type Members = Readonly<Record<string, unknown>>;

/** Malformed body: invalid JSON, wrong media type, wrong field type, contradicting fields. */
export class BodyError extends ArgumentError {}

/** Whether a value is given: neither undefined nor null. */
export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}

/** Returns an object with the members that are given. */
export function given(members: Members): Members {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => isGiven(value)));
}

/** Returns the members of `body` except those in `names`. */
export function without(body: Members, names: ReadonlySet<string>): Members {
  return Object.fromEntries(Object.entries(body).filter(([name]) => !names.has(name)));
}

/** Max fields that an error message lists. */
const MAX_ISSUES = 5;

/** Validates a body. @throws {@link BodyError} `E_ARGUMENT` naming up to five fields. */
export function readMembers<S extends z.ZodType>(schema: S, body: unknown): z.output<S> {
  const { success, data, error } = schema.safeParse(body);
  if (success) return data;
  const lines = error.issues.slice(0, MAX_ISSUES).map((issue) => `\`${issue.path.map(String).join(".")}\`: ${issue.message}`);
  throw new BodyError(lines.join("; "), { param: error.issues[0]?.path.map(String).join(".") ?? null });
}

/**
 * Handler of content that chat completions cannot express, with its path, its value and the remedy. A server rejects the content with
 * {@link reject}; a reader of recorded requests returns, and the translation keeps as much of the content as it can.
 */
export type OnUnsupported = (param: string, got: unknown, instead: string) => void;

/** Returns the error for a feature that this service does not have. `instead` is the remedy. */
export function unsupportedMember(param: string, got: unknown, instead: string): UnsupportedError {
  return new UnsupportedError(`\`${param}\`: ${shown(got)} is not supported. ${instead}`, { param });
}

/** Rejects unsupported content. @throws UnsupportedError `E_UNSUPPORTED` */
export const reject: OnUnsupported = (param, got, instead) => {
  throw unsupportedMember(param, got, instead);
};

/** Accepts unsupported content, for readers of recorded requests. */
export const accept: OnUnsupported = () => {};

/**
 * Reports fields without an equivalent in chat completions.
 *
 * @param fields - Unsupported names, each with the values that request nothing and are accepted, like `null`.
 */
export function checkFields(body: Members, fields: Readonly<Record<string, readonly unknown[]>>, onUnsupported: OnUnsupported): void {
  for (const [name, neutralValues] of Object.entries(fields)) {
    const value = body[name];
    if (isGiven(value) && !neutralValues.includes(value)) onUnsupported(name, value, `Leave \`${name}\` out`);
  }
}

/**
 * The fields of the interface that this build knows and does not carry out. Each is read with its type and taken when it asks
 * for nothing (null or its default, which many clients always send); any other value is refused by name. Carrying a field out
 * means moving its row from here to `fields.ts`.
 */
import { z } from "zod";
import { UnsupportedError } from "../../errors.ts";
import { shown } from "./coercion.ts";

interface RefusedField {
  readonly schema: z.ZodType;
  /** What a client may send, as the message lists it; null is always allowed. */
  readonly allowed: readonly unknown[];
  /** Whether a parsed value asks for nothing. @default it equals one of `allowed` */
  readonly isNeutral?: (value: unknown) => boolean;
}

const only = (schema: z.ZodType, ...allowed: readonly unknown[]): RefusedField => ({ schema, allowed });

/** One row per refused field. */
export const REFUSED_FIELDS: Readonly<Record<string, RefusedField>> = {
  response_format: {
    schema: z.looseObject({ type: z.enum(["text", "json_object", "json_schema", "structural_tag"]) }),
    allowed: [{ type: "text" }],
    isNeutral: (value) => (value as { type: string }).type === "text",
  },
  structured_outputs: only(z.record(z.string(), z.unknown())),
};

/** What a raw field turned out to be. */
export type RefusedFieldVerdict =
  | { readonly kind: "unknown" | "neutral" }
  | { readonly kind: "invalid"; readonly issues: readonly z.core.$ZodIssue[] }
  | { readonly kind: "refused"; readonly error: UnsupportedError };

/** Judges one field of a body that is not among those carried out. */
export function judgeRefusedField(name: string, value: unknown): RefusedFieldVerdict {
  const field = Object.hasOwn(REFUSED_FIELDS, name) ? REFUSED_FIELDS[name]! : undefined;
  if (field === undefined) return { kind: "unknown" };
  if (value === null) return { kind: "neutral" };
  const parsed = field.schema.safeParse(value);
  if (!parsed.success) return { kind: "invalid", issues: parsed.error.issues };
  const isNeutral = field.isNeutral?.(parsed.data) ?? field.allowed.includes(parsed.data);
  if (isNeutral) return { kind: "neutral" };
  const allowed = ["null", ...field.allowed.map(shown)].join(" or ");
  return {
    kind: "refused",
    error: new UnsupportedError(
      `The field \`${name}\` is known but not carried out by this build: got ${shown(value)}, leave it out or send ${allowed}`,
      { param: name },
    ),
  };
}

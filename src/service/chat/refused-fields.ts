/**
 * The fields of the interface that this build knows and does not carry out. Each is read with its type and taken when it asks
 * for nothing (null or its default, which many clients always send); any other value is refused by name. Carrying a field out
 * means moving its row from here to `request.ts`.
 */
import { z } from "zod";
import { UnsupportedError } from "../../errors.ts";
import { laxBoolean, laxInt64, laxInteger, laxNumber, shown, strictString } from "./coercion.ts";

interface RefusedField {
  readonly schema: z.ZodType;
  /** What a client may send, as the message lists it; null is always allowed. */
  readonly allowed: readonly unknown[];
  /** Whether a parsed value asks for nothing. @default it equals one of `allowed` */
  readonly isNeutral?: (value: unknown) => boolean;
}

const record = z.record(z.string(), z.unknown());
const isEmpty = (value: unknown): boolean => Object.keys(value as object).length === 0;
const only = (schema: z.ZodType, ...allowed: readonly unknown[]): RefusedField => ({ schema, allowed });
const onlyEmpty = (schema: z.ZodType, allowed: unknown): RefusedField => ({ schema, allowed: [allowed], isNeutral: isEmpty });

const size = laxInteger.nullish();

/** One row per refused field. */
export const REFUSED_FIELDS: Readonly<Record<string, RefusedField>> = {
  frequency_penalty: only(laxNumber, 0),
  logit_bias: onlyEmpty(z.record(z.string(), laxNumber), {}),
  presence_penalty: only(laxNumber, 0),
  response_format: {
    schema: z.looseObject({ type: z.enum(["text", "json_object", "json_schema", "structural_tag"]) }),
    allowed: [{ type: "text" }],
    isNeutral: (value) => (value as { type: string }).type === "text",
  },
  reasoning_effort: only(z.enum(["low", "medium", "high"])),
  include_reasoning: only(laxBoolean, true),
  parallel_tool_calls: only(laxBoolean, true),
  use_beam_search: only(laxBoolean, false),
  min_p: only(laxNumber, 0),
  repetition_penalty: only(laxNumber, 1),
  length_penalty: only(laxNumber, 1),
  stop_token_ids: onlyEmpty(z.array(laxInteger), []),
  include_stop_str_in_output: only(laxBoolean, false),
  ignore_eos: only(laxBoolean, false),
  min_tokens: only(laxInteger, 0),
  skip_special_tokens: only(laxBoolean, true),
  spaces_between_special_tokens: only(laxBoolean, true),
  truncate_prompt_tokens: only(laxInt64(-1n)),
  prompt_logprobs: only(laxInteger),
  allowed_token_ids: only(z.array(laxInteger)),
  bad_words: onlyEmpty(z.array(strictString), []),
  echo: only(laxBoolean, false),
  add_generation_prompt: only(laxBoolean, true),
  continue_final_message: only(laxBoolean, false),
  add_special_tokens: only(laxBoolean, false),
  documents: only(z.array(z.record(z.string(), strictString))),
  chat_template: only(strictString),
  chat_template_kwargs: onlyEmpty(record, {}),
  mm_processor_kwargs: onlyEmpty(record, {}),
  structured_outputs: only(record),
  priority: only(laxInt64(), 0n),
  return_tokens_as_token_ids: only(laxBoolean, false),
  cache_salt: only(strictString),
  kv_transfer_params: onlyEmpty(record, {}),
  engine_xargs: onlyEmpty(z.record(z.string(), z.union([z.string(), z.number(), z.array(z.union([z.string(), z.number()]))])), {}),
  repetition_detection: {
    schema: z.looseObject({ max_pattern_size: size, min_pattern_size: size, min_count: size }),
    allowed: [{ max_pattern_size: 0, min_pattern_size: 0, min_count: 0 }],
    isNeutral: (value) => {
      const sizes = value as Record<string, number | null | undefined>;
      return !sizes["max_pattern_size"] && !sizes["min_pattern_size"] && !sizes["min_count"];
    },
  },
};

/** Names under which a field is known besides its own. */
const ALIASES: Readonly<Record<string, string>> = { vllm_xargs: "engine_xargs" };

/** What a raw field turned out to be. */
export type RefusedFieldVerdict =
  | { readonly kind: "unknown" | "neutral" }
  | { readonly kind: "invalid"; readonly issues: readonly z.core.$ZodIssue[] }
  | { readonly kind: "refused"; readonly error: UnsupportedError };

/** Judges one field of a body that is not among those carried out. */
export function judgeRefusedField(name: string, value: unknown): RefusedFieldVerdict {
  const canonical = Object.hasOwn(ALIASES, name) ? ALIASES[name]! : name;
  const field = Object.hasOwn(REFUSED_FIELDS, canonical) ? REFUSED_FIELDS[canonical]! : undefined;
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

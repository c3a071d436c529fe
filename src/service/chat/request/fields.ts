/**
 * Fields of a request body in the wire format: their schemas, made of the table `CHAT_FIELDS`, and the reading of a body with them
 * (`readChatFields`).
 *
 * A row of `CHAT_FIELDS` describes a field by data: its type, its default, and the part of the processing that it changes. Everything here is
 * derived from the rows, so that a new field needs a row and no code.
 */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import { requestTool } from "../../../base/schema/chat.ts";
import { CHAT_FIELDS, FIELD_ROWS, fieldShape, type ChatField, type FieldName, type FieldsWith } from "../../../base/schema/chat-fields.ts";
import { laxBoolean, laxInt64, laxInteger, laxNumber, strictString } from "./coercion.ts";
import { shown } from "../../../base/util/shown.ts";
import { camelCase, type CamelCase } from "../../../base/util/letter-case.ts";
import { wireMessage } from "./messages.ts";

const record = z.record(z.string(), z.unknown());
const scalar = z.union([z.string(), z.number()]);

/** Criteria for output that repeats itself. */
export interface RepetitionDetection {
  /** Maximum number of tokens in a repeated pattern. */
  readonly maxPatternSize: number;
  /** Minimum number of tokens in a repeated pattern. */
  readonly minPatternSize: number;
  /** Number of consecutive occurrences at the end of the output. */
  readonly minCount: number;
}

/** Lenient schemas by field type, the member `type` of a row of `CHAT_FIELDS`. */
export const WIRE_TYPES = {
  boolean: laxBoolean,
  integer: laxInteger,
  integers: z.array(laxInteger),
  int64: laxInt64(),
  seed: laxInt64(),
  tokenCount: laxInt64(-1n).transform(Number),
  number: laxNumber,
  string: strictString,
  strings: z.array(strictString),
  object: record,
  messages: z
    .array(wireMessage, {
      error: (issue) => `expected an array of messages, got ${issue.input === undefined ? "nothing" : shown(issue.input)}`,
    })
    .min(1, { error: "expected at least one message, got an empty array" }),
  tools: z.array(requestTool),
  toolChoice: z.union([z.string(), record]),
  reasoningEffort: z.enum(["low", "medium", "high"]),
  documents: z.array(z.record(z.string(), strictString)),
  logitBias: z.record(z.string(), laxNumber),
  stop: z
    .union([z.string(), z.array(z.string())], { error: (issue) => `expected a string or an array of strings, got ${shown(issue.input)}` })
    .transform((stop) => (typeof stop === "string" ? [stop] : stop)),
  repetitionDetection: z
    .object({ max_pattern_size: laxInteger.nullish(), min_pattern_size: laxInteger.nullish(), min_count: laxInteger.nullish() })
    .transform(({ max_pattern_size: max, min_pattern_size: min, min_count: count }): RepetitionDetection => ({
      maxPatternSize: max ?? 0,
      minPatternSize: min ?? 0,
      minCount: count ?? 0,
    })),
  responseFormat: z.looseObject({
    type: z.enum(["text", "json_object", "json_schema", "structural_tag"]),
    json_schema: z
      .looseObject({ name: strictString, description: strictString.nullish(), schema: record.nullish(), strict: laxBoolean.nullish() })
      .nullish(),
  }),
  structuredOutputs: z.object({
    json: z.union([z.string(), record], { error: (issue) => `expected a string or an object, got ${shown(issue.input)}` }).nullish(),
    regex: strictString.nullish(),
    choice: z.array(strictString).min(1, { error: "expected at least one choice, got an empty array" }).nullish(),
    grammar: strictString.refine((source) => source.trim() !== "", { error: "expected a grammar, got a blank text" }).nullish(),
    json_object: laxBoolean.nullish(),
    structural_tag: strictString.nullish(),
    disable_fallback: laxBoolean.nullish(),
    disable_any_whitespace: laxBoolean.nullish(),
    disable_additional_properties: laxBoolean.nullish(),
    whitespace_pattern: strictString.nullish(),
  }),
  streamOptions: z.object({ include_usage: laxBoolean.nullish(), continuous_usage_stats: laxBoolean.nullish() }),
  engineArguments: z.record(z.string(), z.union([scalar, z.array(scalar)])),
};

/** Schemas of the fields. */
const WIRE_FIELDS = fieldShape(WIRE_TYPES);

/** Schema of a whole body, for the OpenAPI description of the service. Unknown fields are accepted and have no effect. */
export const wireRequest = z.looseObject(WIRE_FIELDS);

/** Typed fields of a body. */
export type ChatFields = z.infer<z.ZodObject<typeof WIRE_FIELDS>>;

/**
 * Values of `changes` in `CHAT_FIELDS` whose fields do not become members of a request one by one: `readChat` combines several such fields
 * into one member, or ignores them.
 */
const COMBINED = ["prompt", "length", "grammar", "logprobs", "stream", "none"] as const;

/** Names of the fields that become members of a request. */
type MemberField = Exclude<FieldName, FieldsWith<{ readonly changes: (typeof COMBINED)[number] }>>;

/**
 * Members of a request that have the value of one field each, with names in camel case. An absent field has its default, or null if it has
 * none.
 */
export type FieldMembers = {
  readonly [Name in MemberField as CamelCase<Name>]:
    | Readonly<NonNullable<ChatFields[Name]>>
    | (Name extends FieldsWith<{ readonly default: unknown }> ? never : null);
};

/** Rows of all fields, each with its schema, and with the name of its member in a request if `isMember`. */
const ROWS = FIELD_ROWS.map(([name, row]) => {
  const member = camelCase(name) as keyof FieldMembers;
  const isMember = !(COMBINED as readonly string[]).includes(row.changes);
  return { ...row, name, member, isMember, schema: WIRE_FIELDS[name] as z.ZodType };
});

/** Values of all members in a request without any field. */
const DEFAULT_MEMBERS = Object.fromEntries(ROWS.filter(({ isMember }) => isMember).map((row) => [row.member, row.default ?? null]));

/** Fields with a range. */
export const RANGED_FIELDS = ROWS.filter(({ range }) => range !== undefined);

/** Fields with 64-bit integers: a double may round them, so they are parsed from the digits in the body. */
export const INT64_FIELDS = namesOf(({ type }) => type === "int64" || type === "seed" || type === "tokenCount");

/** Fields that have no effect with beam search. */
const IGNORED_BY_BEAM_SEARCH = namesOf(({ beamSearch }) => beamSearch === "ignored");

/** Fields that this service accepts and ignores. */
const INERT_FIELDS = namesOf(({ changes }) => changes === "none");

/** Returns the names of the fields for which `isWanted` holds. */
function namesOf(isWanted: (row: ChatField) => boolean): readonly FieldName[] {
  return ROWS.filter(isWanted).map(({ name }) => name);
}

/** Fields by name and by alias. Aliases come last, so that the field's own name wins if a body has both. */
export const FIELD_NAMES: ReadonlyMap<string, FieldName> = new Map([
  ...ROWS.map(({ name }) => [name, name] as const),
  ...ROWS.flatMap(({ name, alias }) => (alias === undefined ? [] : [[alias, name] as const])),
]);

/**
 * Parses the supported fields that a body contains, and required fields even if they are absent. Other absent fields are skipped, because
 * checking all of them is a considerable part of the cost of a short request.
 *
 * @param raw - Top-level members of the body, without aliases.
 * @param options.hasMessages - Whether `messages` is required; otherwise the fields have an empty list.
 * @returns The typed fields under their names in the body, and as members of a request; or the issues of all fields that fail.
 */
export function readChatFields(
  raw: Readonly<Record<string, unknown>>,
  { hasMessages }: { readonly hasMessages: boolean },
): { readonly body: ChatFields; readonly members: FieldMembers } | { readonly issues: readonly z.core.$ZodIssue[] } {
  const body: Record<string, unknown> = hasMessages ? {} : { messages: [] };
  const members: Record<string, unknown> = { ...DEFAULT_MEMBERS };
  const issues: z.core.$ZodIssue[] = [];
  for (const { name, schema, isRequired, isMember, member } of ROWS) {
    // The only required field is `messages`.
    const mustBeThere = isRequired === true && hasMessages;
    if (!Object.hasOwn(raw, name) && !mustBeThere) continue;
    const { success, data, error } = schema.safeParse(raw[name]);
    if (!success) for (const issue of error.issues) issues.push({ ...issue, path: [name, ...issue.path] });
    body[name] = data;
    if (isMember && data !== null && data !== undefined) members[member] = data;
  }
  return issues.length > 0 ? { issues } : { body: body as ChatFields, members: members as FieldMembers };
}

/** Whether a value has the same effect as an absent field: clients may send such values for every field they know. */
export function isDefault(name: FieldName, value: unknown): boolean {
  if (value === undefined || value === null) return true;
  const { success, data } = WIRE_FIELDS[name].safeParse(value);
  const row: ChatField = CHAT_FIELDS[name];
  return success && row.default !== undefined && isDeepStrictEqual(data, row.default);
}

/** Server features that some fields need. */
export interface FieldNeeds {
  /** Whether responses have their reasoning parsed. */
  readonly parsesReasoning: boolean;
}

/** Returns the fields that a body sets to something else than an empty value and that have no effect here, for the log. */
export function inertFields(body: ChatFields, { parsesReasoning }: FieldNeeds): string[] {
  const candidates: FieldName[] = INERT_FIELDS.filter((name) => body[name] !== (CHAT_FIELDS[name] as ChatField).default);
  if (body.use_beam_search === true) candidates.push(...IGNORED_BY_BEAM_SEARCH);
  else if (body.length_penalty !== 1) candidates.push("length_penalty");
  if (body.include_reasoning === false && !parsesReasoning) candidates.push("include_reasoning");
  const inert: string[] = candidates.filter((name) => isFilled(body[name]));
  // There is only one backend, and therefore no fallback.
  if (body.structured_outputs?.disable_fallback === true) inert.push("structured_outputs.disable_fallback");
  return inert;
}

/** Whether a value is neither absent nor an empty object or list. */
function isFilled(value: unknown): boolean {
  if (value === null || value === undefined) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}

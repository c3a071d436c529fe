/** Settings of `whetstone train` and `whetstone sweep`: their names, types and descriptions. */
import { z } from "zod";
import { rlSettings } from "../../training/train/settings.ts";

/** Schema of the settings of a run: the model that it creates, and the settings of `trainRl`. */
export const trainSettings = z.strictObject({
  base: z.string().min(1).optional().describe('base model of a new model (default: "whetstone-tiny")'),
  loraRank: z.int().min(1).max(256).optional().describe("rank of the adapter of a new model (default: train all weights)"),
  ...rlSettings.shape,
});
/** Settings of a run. */
export type TrainSettings = z.infer<typeof trainSettings>;

/** Schema of the member `$schema`, with which a file names its JSON schema for editors. */
export const schemaAddress = z.string().optional().describe("JSON schema of this file, for editors");

/** Schema of a configuration file. */
export const trainConfig = z.strictObject({ $schema: schemaAddress, ...trainSettings.shape });

/** Returns the JSON schema of a file for editors. */
export function editorSchema(schema: z.ZodType): z.core.JSONSchema.BaseSchema {
  return z.toJSONSchema(schema, { io: "input", target: "draft-7" });
}

/** Part of a JSON schema. */
type Node = z.core.JSONSchema.BaseSchema;

/** A setting: its type and its description. */
export interface SettingType {
  readonly schema: Node;
  readonly description: string;
}

/** Returns the part of a schema that describes other values than null. */
function withoutNull({ anyOf, type, ...schema }: Node): Node {
  const other = anyOf?.find((each) => (each as Node).type !== "null") as Node | undefined;
  if (other !== undefined) return { ...schema, ...other };
  const [only = type] = Array.isArray(type) ? (type as string[]).filter((each) => each !== "null") : [type];
  return { ...schema, type: only } as Node;
}

/** Adds the members of an object schema to `found`, with the members of their objects. */
function collect(schema: Node, prefix: string, found: Map<string, SettingType>): void {
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const path = `${prefix}${name}`;
    const inner = withoutNull(property as Node);
    found.set(path, { schema: inner, description: inner.description ?? "" });
    collect(inner, `${path}.`, found);
  }
}

/** All settings by name, `train.learningRate` for a member of an object, in the order of the schema. */
export const SETTINGS: ReadonlyMap<string, SettingType> = (() => {
  const found = new Map<string, SettingType>();
  collect(editorSchema(trainSettings), "", found);
  return found;
})();

/** Returns the schema of one setting; any JSON for a member of an object that accepts any members. */
export function schemaOf(name: string): z.ZodType {
  let schema: z.ZodType = trainSettings;
  for (const part of name.split(".")) {
    while (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) schema = schema.unwrap() as z.ZodType;
    if (!(schema instanceof z.ZodObject)) return z.json();
    schema = schema.shape[part] as z.ZodType;
  }
  return schema;
}

/** Whether a setting is an object that accepts members of any name. */
function isOpen({ schema }: SettingType): boolean {
  return typeof schema.additionalProperties === "object";
}

/**
 * Returns the setting with a name, or undefined if it is unknown. Members of an object that accepts any members, such as
 * `chatTemplateKwargs`, have no schema.
 */
export function settingTypeOf(name: string): SettingType | undefined {
  const found = SETTINGS.get(name);
  if (found !== undefined) return found;
  const [head = "", ...rest] = name.split(".");
  const parent = SETTINGS.get(head);
  return parent !== undefined && isOpen(parent) && rest.length > 0 && !rest.includes("") ? { schema: {}, description: "" } : undefined;
}

/** Returns the type of a setting in words: `a number of at least 0`. */
export function expectationOf({
  type,
  const: only,
  enum: values = only === undefined ? undefined : [only],
  minimum,
  exclusiveMinimum,
  maximum,
  exclusiveMaximum,
  items,
}: Node): string {
  if (values !== undefined) return values.map((value) => JSON.stringify(value)).join(" or ");
  switch (type) {
    case "boolean":
      return "true or false";
    case "string":
      return "a text";
    case "array":
      return `a list, each ${expectationOf(items as Node)}`;
    case "integer":
    case "number": {
      // An integer without bounds has the bounds of safe integers in its JSON schema; they are not worth naming.
      const low = minimum === undefined || minimum === Number.MIN_SAFE_INTEGER ? [] : [`of at least ${minimum}`];
      const high = maximum === undefined || maximum === Number.MAX_SAFE_INTEGER ? [] : [`at most ${maximum}`];
      const bounds = [
        ...low,
        ...(exclusiveMinimum === undefined ? [] : [`above ${exclusiveMinimum}`]),
        ...high,
        ...(exclusiveMaximum === undefined ? [] : [`below ${exclusiveMaximum}`]),
      ];
      return [type === "integer" ? "an integer" : "a number", bounds.join(" and ")].join(" ").trim();
    }
    case "object":
      return "an object";
    default:
      return "a JSON value";
  }
}

/** Max names that an error suggests. */
const MAX_SUGGESTED = 3;
/** Max edit distance of a suggestion, as a fraction of the length of the name. */
const MAX_DISTANCE = 0.34;

/** Returns the number of inserted, deleted or replaced characters between two texts (Levenshtein distance). */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 0; i < a.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++)
      next.push(Math.min((row[j] as number) + Number(a[i] !== b[j]), (row[j + 1] as number) + 1, (next[j] as number) + 1));
    row = next;
  }
  return row[b.length] as number;
}

/** Returns a name without the characters in which spellings differ: `kl_penalty_coef` and `klPenaltyCoef` are equal. */
function plain(name: string): string {
  return name.replaceAll(/[_-]/gu, "").toLowerCase();
}

/** Returns the message that a setting does not exist, with the most similar names. */
export function unknownSetting(name: string): string {
  const wanted = plain(name);
  const candidates = [...SETTINGS.keys()]
    .map((path) => {
      // A name without its object, `klPenaltyCoef`, is nearest to the member of this name.
      const forms = [path, path.slice(path.lastIndexOf(".") + 1)];
      return { path, far: Math.min(...forms.map((form) => distance(wanted, plain(form)))) };
    })
    .filter(({ far }) => far <= MAX_DISTANCE * wanted.length)
    .sort((a, b) => a.far - b.far);
  const best = candidates.filter(({ far }) => far === candidates[0]?.far).slice(0, MAX_SUGGESTED);
  const hint =
    best.length === 0
      ? "docs/reference/configuration.md lists the settings"
      : `did you mean ${best.map(({ path }) => `\`${path}\``).join(" or ")}?`;
  return `unknown setting \`${name}\`; ${hint}`;
}

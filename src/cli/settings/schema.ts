/** Settings of `whetstone train` and `whetstone sweep`: their names, types and descriptions. */
import { z } from "zod";
import { itemAt } from "../../base/util/values.ts";
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
type SchemaNode = z.core.JSONSchema.BaseSchema;

/** A setting: its type and its description. */
export interface SettingType {
  readonly schema: SchemaNode;
  readonly description: string;
}

/** Returns the part of a schema that describes other values than null. */
function withoutNull({ anyOf, type, ...schema }: SchemaNode): SchemaNode {
  const alternative = anyOf?.find((each) => (each as SchemaNode).type !== "null") as SchemaNode | undefined;
  if (alternative !== undefined) return { ...schema, ...alternative };
  const [otherType = type] = Array.isArray(type) ? (type as string[]).filter((each) => each !== "null") : [type];
  return { ...schema, type: otherType } as SchemaNode;
}

/**
 * Adds the members of an object schema to `settings`, with the members of their objects.
 *
 * @param prefix - Path of the object, ended by a dot.
 */
function collect(schema: SchemaNode, prefix: string, settings: Map<string, SettingType>): void {
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const path = `${prefix}${name}`;
    const member = withoutNull(property as SchemaNode);
    settings.set(path, { schema: member, description: member.description ?? "" });
    collect(member, `${path}.`, settings);
  }
}

/** All settings by name, `train.learningRate` for a member of an object, in the order of the schema. */
export const SETTINGS: ReadonlyMap<string, SettingType> = (() => {
  const settings = new Map<string, SettingType>();
  collect(editorSchema(trainSettings), "", settings);
  return settings;
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
  const setting = SETTINGS.get(name);
  if (setting !== undefined) return setting;
  const [parentName = "", ...memberPath] = name.split(".");
  const parent = SETTINGS.get(parentName);
  if (parent === undefined || !isOpen(parent)) return undefined;
  return memberPath.length > 0 && !memberPath.includes("") ? { schema: {}, description: "" } : undefined;
}

/** Returns the type of a setting in words: `a number of at least 0`. */
export function expectationOf({
  type,
  const: onlyValue,
  enum: values = onlyValue === undefined ? undefined : [onlyValue],
  minimum,
  exclusiveMinimum,
  maximum,
  exclusiveMaximum,
  items,
}: SchemaNode): string {
  if (values !== undefined) return values.map((value) => JSON.stringify(value)).join(" or ");
  switch (type) {
    case "boolean":
      return "true or false";
    case "string":
      return "a text";
    case "array":
      return `a list, each ${expectationOf(items as SchemaNode)}`;
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
  // Element `j` of the row of `i` is the distance between the first `i` characters of `a` and the first `j` of `b`.
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 0; i < a.length; i++) {
    const nextRow = [i + 1];
    for (let j = 0; j < b.length; j++) {
      const replaced = itemAt(row, j) + Number(a[i] !== b[j]);
      const deleted = itemAt(row, j + 1) + 1;
      const inserted = itemAt(nextRow, j) + 1;
      nextRow.push(Math.min(replaced, deleted, inserted));
    }
    row = nextRow;
  }
  return itemAt(row, b.length);
}

/** Returns a name without the characters in which spellings differ: `kl_penalty_coef` and `klPenaltyCoef` are equal. */
function plain(name: string): string {
  return name.replaceAll(/[_-]/gu, "").toLowerCase();
}

/** Returns the message that a setting does not exist, with the most similar names. */
export function unknownSetting(name: string): string {
  const plainName = plain(name);
  const candidates = [...SETTINGS.keys()]
    .map((path) => {
      // A name without its object, `klPenaltyCoef`, is nearest to the member of this name.
      const forms = [path, path.slice(path.lastIndexOf(".") + 1)];
      return { path, edits: Math.min(...forms.map((form) => distance(plainName, plain(form)))) };
    })
    .filter(({ edits }) => edits <= MAX_DISTANCE * plainName.length)
    .sort((a, b) => a.edits - b.edits);
  const nearest = candidates.filter(({ edits }) => edits === candidates[0]?.edits).slice(0, MAX_SUGGESTED);
  const hint =
    nearest.length === 0
      ? "docs/reference/configuration.md lists the settings"
      : `did you mean ${nearest.map(({ path }) => `\`${path}\``).join(" or ")}?`;
  return `unknown setting \`${name}\`; ${hint}`;
}

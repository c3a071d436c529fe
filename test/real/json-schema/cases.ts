/**
 * Schemas of the JSON Schema Test Suite (https://github.com/json-schema-org/JSON-Schema-Test-Suite), draft 2020-12 with its optional and
 * format tests. A schema that refers to other documents has them in `$defs`, as section 9.3 of the specification describes.
 */
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { isSchemaObject, type Schema, type SchemaObject } from "../../../src/text/grammar/compile/schema/keywords.ts";

const DRAFT = "draft2020-12";
const META = "https://json-schema.org/draft/2020-12/";
const META_PARTS = ["core", "applicator", "unevaluated", "validation", "meta-data", "format-annotation", "content"];

/** A value, and whether it is valid. */
interface SuiteValue {
  readonly description: string;
  readonly data: unknown;
  readonly valid: boolean;
}

export interface SuiteCase {
  /** File and description of the schema. */
  readonly name: string;
  readonly schema: Schema;
  /** The schema with all documents that it refers to. */
  readonly bundle: Schema;
  readonly values: readonly SuiteValue[];
}

function readJson<T>(path: string): T {
  return JSON.parse(readFileSync(path, "utf8")) as T;
}

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".json"))
    .toSorted();
}

/** Returns the documents to which schemas of the suite refer, by URI. */
export function suiteDocuments(directory: string): ReadonlyMap<string, SchemaObject> {
  const remotes = filesBelow(join(directory, "remotes")).map((file): [string, SchemaObject] => [
    `http://localhost:1234/${file}`,
    readJson(join(directory, "remotes", file)),
  ]);
  const require = createRequire(import.meta.url);
  const meta = ["schema", ...META_PARTS.map((part) => `meta/${part}`)].map((part): [string, SchemaObject] => [
    META + part,
    require(`ajv/dist/refs/json-schema-2020-12/${part}.json`) as SchemaObject,
  ]);
  return new Map([...remotes, ...meta]);
}

function resolved(reference: string, base: string): string {
  if (!URL.canParse(reference, base)) return reference;
  const url = new URL(reference, base);
  url.hash = "";
  return url.href;
}

/** Returns the documents to which a value refers. */
function referredBy(value: unknown, base: string): string[] {
  if (Array.isArray(value)) return value.flatMap((each) => referredBy(each, base));
  if (!isSchemaObject(value)) return [];
  const { $id, $ref, $dynamicRef } = value;
  const inner = typeof $id === "string" ? resolved($id, base) : base;
  const own = [$ref, $dynamicRef].filter((each) => typeof each === "string").map((each) => resolved(each, inner));
  return [...own, ...Object.values(value).flatMap((each) => referredBy(each, inner))];
}

function bundled(schema: Schema, documents: ReadonlyMap<string, SchemaObject>): Schema {
  if (!isSchemaObject(schema)) return schema;
  const added: Record<string, SchemaObject> = {};
  const pending = referredBy(schema, "schema:///");
  for (const uri of pending) {
    const document = documents.get(uri);
    if (document === undefined || uri in added) continue;
    const own = typeof document["$id"] === "string" ? resolved(document["$id"], uri) : uri;
    added[uri] = own === uri ? { ...document, $id: uri } : { $id: uri, $ref: own, $defs: { document: { ...document, $id: own } } };
    pending.push(...referredBy(document, uri));
  }
  if (Object.keys(added).length === 0) return schema;
  return { ...schema, $defs: { ...(schema["$defs"] as object | undefined), ...added } };
}

/** Reads the schemas of a checkout of the suite. */
export function suiteCases(directory: string): readonly SuiteCase[] {
  const documents = suiteDocuments(directory);
  const tests = join(directory, "tests", DRAFT);
  return filesBelow(tests).flatMap((file) =>
    readJson<{ readonly description: string; readonly schema: Schema; readonly tests: readonly SuiteValue[] }[]>(join(tests, file)).map(
      ({ description, schema, tests: values }): SuiteCase => ({
        name: `${file}: ${description}`,
        schema,
        bundle: bundled(schema, documents),
        values,
      }),
    ),
  );
}

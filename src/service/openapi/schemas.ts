/**
 * JSON schemas of the OpenAPI document, generated from the validation schemas of the service.
 *
 * A schema with a name becomes a component of the document, and other schemas refer to it. Requests and responses have separate components at
 * first (`DirectedSchemas`), because members with defaults are optional only in requests; {@link joinComponents} merges them.
 */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import * as contract from "../../base/schema/index.ts";
import { laxBoolean, laxInteger, laxNumber } from "../chat/request/coercion.ts";
import { wireRequest } from "../chat/request/fields.ts";

/** JSON schema. */
export type JsonSchema = { readonly [keyword: string]: unknown };

/** Prefix of references to components. */
const COMPONENTS = "#/components/schemas/";

/** Components that the schema module does not export, or exports in a form other than the one clients write. */
const SERVICE_SCHEMAS = { ChatCompletionRequest: wireRequest, LaxInteger: laxInteger, LaxNumber: laxNumber, LaxBoolean: laxBoolean };

/** Returns all named schemas by component name. */
function namedSchemas(): ReadonlyMap<string, z.ZodType> {
  const exported = Object.entries<unknown>(contract).filter((entry): entry is [string, z.ZodType] => entry[1] instanceof z.ZodType);
  const named = exported.map(([name, schema]) => [`${name.charAt(0).toUpperCase()}${name.slice(1)}`, schema] as const);
  return new Map<string, z.ZodType>([...named, ...Object.entries(SERVICE_SCHEMAS)]);
}

/** Whether a reference points to an unnamed schema that zod shares between components: the recursive definition of any JSON value. */
function isJsonValue(reference: unknown): boolean {
  return typeof reference === "string" && (reference === `${COMPONENTS}JsonValue` || reference.startsWith(`${COMPONENTS}__shared`));
}

/** Removes keywords that have no effect in a document, and replaces the definition of any JSON value by the empty schema. */
function cleanSchema(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(cleanSchema);
  if (typeof value !== "object" || value === null) return value;
  const schema = value as JsonSchema;
  if (isJsonValue(schema["$ref"])) return {};
  const { propertyNames: names } = schema;
  const isAnyName = typeof names === "object" && names !== null && JSON.stringify(names) === '{"type":"string"}';
  const keptEntries = Object.entries(schema).filter(
    ([keyword]) => keyword !== "$schema" && keyword !== "$id" && !(keyword === "propertyNames" && isAnyName),
  );
  return Object.fromEntries(keptEntries.map(([keyword, item]) => [keyword, cleanSchema(item)]));
}

/** Returns the name of the component that a keyword refers to; null for any other keyword. */
function componentIn(keyword: string, item: unknown): string | null {
  const isReference = keyword === "$ref" && typeof item === "string" && item.startsWith(COMPONENTS);
  return isReference ? item.slice(COMPONENTS.length) : null;
}

/** Adds the names of the components that a schema refers to, at any depth, to `found`, and returns them. */
function referencesIn(value: unknown, found: Set<string> = new Set()): Set<string> {
  if (Array.isArray(value)) {
    for (const item of value) referencesIn(item, found);
  } else if (typeof value === "object" && value !== null) {
    for (const [keyword, item] of Object.entries(value)) {
      const name = componentIn(keyword, item);
      if (name === null) referencesIn(item, found);
      else found.add(name);
    }
  }
  return found;
}

/** Returns a copy of a part of the document in which every reference to a component has the name that `rename` returns. */
function withRenamedReferences<T>(part: T, rename: (name: string) => string): T {
  if (Array.isArray(part)) return part.map((item: unknown) => withRenamedReferences(item, rename)) as T;
  if (typeof part !== "object" || part === null) return part;
  const entries = Object.entries(part).map(([keyword, item]: [string, unknown]) => {
    const name = componentIn(keyword, item);
    return [keyword, name === null ? withRenamedReferences(item, rename) : COMPONENTS + rename(name)];
  });
  return Object.fromEntries(entries) as T;
}

/** Schemas of one direction: `input` for requests, `output` for responses. */
export class DirectedSchemas {
  /** Components by name. */
  readonly #schemas: Readonly<Record<string, JsonSchema>>;
  /** Names of components by validation schema. */
  readonly #names = new Map<z.ZodType, string>();
  readonly #io: "input" | "output";

  constructor(io: "input" | "output") {
    this.#io = io;
    const registry = z.registry<{ id: string }>();
    for (const [id, schema] of namedSchemas()) {
      registry.add(schema, { id });
      this.#names.set(schema, id);
    }
    const generated = z.toJSONSchema(registry, { io, uri: (id) => COMPONENTS + id, unrepresentable: "any" });
    this.#schemas = cleanSchema(generated.schemas) as Readonly<Record<string, JsonSchema>>;
  }

  /** Returns the schema to use in the document: a reference to a component, or an inline schema if it has no name. */
  schemaOf(schema: z.ZodType): JsonSchema {
    const name = this.#names.get(schema);
    if (name !== undefined) return { $ref: COMPONENTS + name };
    return cleanSchema(z.toJSONSchema(schema, { io: this.#io, unrepresentable: "any" })) as JsonSchema;
  }

  /** Returns the components that are reachable from parts of a document. */
  reachable(parts: unknown): Map<string, JsonSchema> {
    const reached = new Map<string, JsonSchema>();
    const queue = [...referencesIn(parts)];
    for (let name = queue.pop(); name !== undefined; name = queue.pop()) {
      const schema = this.#schemas[name];
      if (schema === undefined || reached.has(name)) continue;
      reached.set(name, schema);
      queue.push(...referencesIn(schema));
    }
    return reached;
  }
}

/** Returns the schemas of requests. */
export function requestSchemas(): DirectedSchemas {
  return new DirectedSchemas("input");
}

/** Returns the schemas of responses. */
export function answerSchemas(): DirectedSchemas {
  return new DirectedSchemas("output");
}

/** Components of requests and responses in one namespace. */
export interface JoinedSchemas {
  readonly components: Readonly<Record<string, JsonSchema>>;
  /** Renames the references in a part of a request. */
  readonly forRequest: <T>(part: T) => T;
}

/**
 * Joins the components of requests and responses. A component gets the suffix `Input` in requests if its two versions differ, because a
 * member with a default is optional only in requests.
 */
export function joinComponents(requests: ReadonlyMap<string, JsonSchema>, answers: ReadonlyMap<string, JsonSchema>): JoinedSchemas {
  const differing = differingComponents(requests, answers);
  const requestName = (name: string) => (differing.has(name) ? `${name}Input` : name);
  const forRequest = <T>(part: T): T => withRenamedReferences(part, requestName);
  const requestComponents = [...requests].map(([name, schema]) => [requestName(name), forRequest(schema)] as const);
  const components = [...answers, ...requestComponents].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return { components: Object.fromEntries(components), forRequest };
}

/** Returns the names of the components with different versions in requests and responses. */
function differingComponents(requests: ReadonlyMap<string, JsonSchema>, answers: ReadonlyMap<string, JsonSchema>): ReadonlySet<string> {
  const shared = [...requests].filter(([name]) => answers.has(name));
  const differing = new Set<string>();
  for (const [name, schema] of shared) if (!isDeepStrictEqual(schema, answers.get(name))) differing.add(name);
  // A schema that refers to a differing schema also differs, so that further schemas are added until none is left.
  let previousSize: number;
  do {
    previousSize = differing.size;
    for (const [name, schema] of shared) if ([...referencesIn(schema)].some((other) => differing.has(other))) differing.add(name);
  } while (differing.size > previousSize);
  return differing;
}

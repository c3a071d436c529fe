/**
 * JSON schemas of the document, generated from the validation schemas of the service. Requests and responses have separate schemas at
 * first, because members with defaults are optional only in requests; {@link joinComponents} merges them.
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

/** Collects the names of the components that a schema refers to. */
function referencesIn(value: unknown, found: Set<string> = new Set()): Set<string> {
  if (Array.isArray(value)) for (const item of value) referencesIn(item, found);
  else if (typeof value === "object" && value !== null)
    for (const [keyword, item] of Object.entries(value)) {
      if (keyword === "$ref" && typeof item === "string" && item.startsWith(COMPONENTS)) found.add(item.slice(COMPONENTS.length));
      else referencesIn(item, found);
    }
  return found;
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
  const isShared = (name: string) => requests.has(name) && answers.has(name);
  const differing = new Set(
    [...requests.keys()].filter((name) => isShared(name) && !isDeepStrictEqual(requests.get(name), answers.get(name))),
  );
  // A schema that refers to a differing schema also differs.
  let previousSize: number;
  do {
    previousSize = differing.size;
    for (const [name, schema] of requests)
      if (isShared(name) && [...referencesIn(schema)].some((other) => differing.has(other))) differing.add(name);
  } while (differing.size > previousSize);
  const requestName = (name: string) => (differing.has(name) ? `${name}Input` : name);
  function forRequest<T>(part: T): T {
    if (Array.isArray(part)) return part.map(forRequest) as T;
    if (typeof part !== "object" || part === null) return part;
    const entries = Object.entries(part).map(([keyword, item]: [string, unknown]) => {
      const isReference = keyword === "$ref" && typeof item === "string" && item.startsWith(COMPONENTS);
      return [keyword, isReference ? COMPONENTS + requestName(item.slice(COMPONENTS.length)) : forRequest(item)];
    });
    return Object.fromEntries(entries) as T;
  }
  const components = [...answers, ...[...requests].map(([name, schema]) => [requestName(name), forRequest(schema)] as const)];
  return { components: Object.fromEntries(components.toSorted(([a], [b]) => (a < b ? -1 : 1))), forRequest };
}

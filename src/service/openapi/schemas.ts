/** JSON schemas of the document, made from the schemas that the service validates with. */
import { isDeepStrictEqual } from "node:util";
import { z } from "zod";
import * as contract from "../../schema/index.ts";
import { laxBoolean, laxInteger, laxNumber } from "../chat/coercion.ts";
import { wireRequest } from "../chat/fields.ts";

/** A JSON schema. */
export type JsonSchema = { readonly [keyword: string]: unknown };

/** Prefix of references into the document. */
const COMPONENTS = "#/components/schemas/";

/** Components that the schema module has no name for, or has in the form that clients write. */
const SERVICE_SCHEMAS = { ChatCompletionRequest: wireRequest, LaxInteger: laxInteger, LaxNumber: laxNumber, LaxBoolean: laxBoolean };

/** Every named schema by the name of its component. */
function namedSchemas(): ReadonlyMap<string, z.ZodType> {
  const exported = Object.entries<unknown>(contract).filter((entry): entry is [string, z.ZodType] => entry[1] instanceof z.ZodType);
  const named = exported.map(([name, schema]) => [`${name.charAt(0).toUpperCase()}${name.slice(1)}`, schema] as const);
  return new Map<string, z.ZodType>([...named, ...Object.entries(SERVICE_SCHEMAS)]);
}

/** True for a reference to what zod shares between components without a name: the recursive definition of any JSON value. */
function isJsonValue(reference: unknown): boolean {
  return typeof reference === "string" && (reference === `${COMPONENTS}JsonValue` || reference.startsWith(`${COMPONENTS}__shared`));
}

/** Removes keywords without effect in a document, and writes any JSON value as the schema `true` allows it. */
function tidied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(tidied);
  if (typeof value !== "object" || value === null) return value;
  const schema = value as JsonSchema;
  if (isJsonValue(schema["$ref"])) return {};
  const { propertyNames: names } = schema;
  const isAnyName = typeof names === "object" && names !== null && JSON.stringify(names) === '{"type":"string"}';
  const kept = Object.entries(schema).filter(
    ([keyword]) => keyword !== "$schema" && keyword !== "$id" && !(keyword === "propertyNames" && isAnyName),
  );
  return Object.fromEntries(kept.map(([keyword, item]) => [keyword, tidied(item)]));
}

/** Collects the names of components that a schema refers to. */
function referencesIn(value: unknown, found: Set<string> = new Set()): Set<string> {
  if (Array.isArray(value)) for (const item of value) referencesIn(item, found);
  else if (typeof value === "object" && value !== null)
    for (const [keyword, item] of Object.entries(value)) {
      if (keyword === "$ref" && typeof item === "string" && item.startsWith(COMPONENTS)) found.add(item.slice(COMPONENTS.length));
      else referencesIn(item, found);
    }
  return found;
}

/** Schemas of one direction: `input` is what a request may hold, `output` what an answer holds. */
class DirectedSchemas {
  readonly #schemas: Readonly<Record<string, JsonSchema>>;
  readonly #names = new Map<z.ZodType, string>();
  readonly #io: "input" | "output";

  constructor(io: "input" | "output") {
    this.#io = io;
    const registry = z.registry<{ id: string }>();
    for (const [id, schema] of namedSchemas()) {
      registry.add(schema, { id });
      this.#names.set(schema, id);
    }
    const made = z.toJSONSchema(registry, { io, uri: (id) => COMPONENTS + id, unrepresentable: "any" });
    this.#schemas = tidied(made.schemas) as Readonly<Record<string, JsonSchema>>;
  }

  /** The schema at a place of the document: a reference to a component, or a schema without a name in full. */
  at(schema: z.ZodType): JsonSchema {
    const name = this.#names.get(schema);
    if (name !== undefined) return { $ref: COMPONENTS + name };
    return tidied(z.toJSONSchema(schema, { io: this.#io, unrepresentable: "any" })) as JsonSchema;
  }

  /** The components reached from parts of a document. */
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

/** Schemas of requests. */
export function requestSchemas(): DirectedSchemas {
  return new DirectedSchemas("input");
}

/** Schemas of answers. */
export function answerSchemas(): DirectedSchemas {
  return new DirectedSchemas("output");
}

/** Components of requests and answers in one name space. */
export interface JoinedSchemas {
  readonly components: Readonly<Record<string, JsonSchema>>;
  /** Adapts the references in a part of a request. */
  readonly forRequest: <T>(part: T) => T;
}

/**
 * Joins the components of requests and of answers. A schema that differs between them, because a member with a default may be absent
 * from a request alone, has the suffix `Input` in requests.
 */
export function joined(requests: ReadonlyMap<string, JsonSchema>, answers: ReadonlyMap<string, JsonSchema>): JoinedSchemas {
  const isShared = (name: string) => requests.has(name) && answers.has(name);
  const differing = new Set(
    [...requests.keys()].filter((name) => isShared(name) && !isDeepStrictEqual(requests.get(name), answers.get(name))),
  );
  // A schema that refers to one that differs differs, too.
  for (let size = -1; size !== differing.size;) {
    size = differing.size;
    for (const [name, schema] of requests)
      if (isShared(name) && [...referencesIn(schema)].some((other) => differing.has(other))) differing.add(name);
  }
  const inRequests = (name: string) => (differing.has(name) ? `${name}Input` : name);
  function forRequest<T>(part: T): T {
    if (Array.isArray(part)) return part.map(forRequest) as T;
    if (typeof part !== "object" || part === null) return part;
    const entries = Object.entries(part).map(([keyword, item]: [string, unknown]) => {
      const isReference = keyword === "$ref" && typeof item === "string" && item.startsWith(COMPONENTS);
      return [keyword, isReference ? COMPONENTS + inRequests(item.slice(COMPONENTS.length)) : forRequest(item)];
    });
    return Object.fromEntries(entries) as T;
  }
  const all = [...answers, ...[...requests].map(([name, schema]) => [inRequests(name), forRequest(schema)] as const)];
  return { components: Object.fromEntries(all.toSorted(([a], [b]) => (a < b ? -1 : 1))), forRequest };
}

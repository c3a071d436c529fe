/**
 * Identifiers of the schemas in one document: `$id`, `$anchor`, `$dynamicAnchor` and `$recursiveAnchor`, and references by them.
 *
 * A document with identifiers is replaced by an equivalent one in which every reference is a JSON pointer, so that grammar and validation
 * need to resolve nothing else.
 */
import { ArgumentError } from "../../../../base/errors.ts";
import { asList, invalid, isSameJson, isSchemaObject, MAX_SCHEMAS, omit, type Schema, type SchemaObject } from "./keywords.ts";
import { withParts } from "./parts.ts";
import { atPointer, decoded, inOtherDocument, type Keyword } from "./references.ts";
import { getOrInsert, getOrThrow } from "../../../../base/util/values.ts";

/**
 * Dynamic scope: for each dynamic anchor, its position in the outermost of the resources that the evaluation has entered. Equal scopes are
 * the same object.
 */
type Scope = ReadonlyMap<string, string>;

/** Part of a document with an identifier of its own, without the resources inside it. */
interface Resource {
  /** Position in the document, a JSON pointer. */
  readonly pointer: string;
  /** Absolute URI, from its `$id`. */
  readonly uri: string;
  /** Resource that contains this one; null for the document. */
  readonly parent: Resource | null;
  /** Position of each anchor. */
  readonly anchors: Map<string, string>;
  /** Position of each dynamic anchor. */
  readonly dynamicAnchors: Map<string, string>;
}

const NO_ANCHORS: Scope = new Map();

/** Base URI of a document without `$id`. */
const NO_URI = "schema:///";

const IDENTIFIERS = ["$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"];
const REFERENCES = ["$ref", "$dynamicRef", "$recursiveRef"] as const;
const DEFINITIONS = ["$defs", "definitions"];

/** Name in `Resource.dynamicAnchors` of a resource with `$recursiveAnchor`, the only dynamic anchor of draft 2019-09. */
const RECURSIVE = "";

/** Returns a key as a step of a JSON pointer: `/a~1b` for `a/b`. */
function pointerStep(key: string): string {
  return `/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** Returns the value of `$ref` for a position, a JSON pointer. */
function referenceTo(pointer: string): string {
  return `#${pointer.replace(/[%#"<>\\^`{|}\s]/g, encodeURIComponent)}`;
}

/** Resolves the identifiers of one document. Positions are JSON pointers from its root. */
class Identifiers {
  readonly #document: SchemaObject;
  readonly #resourcesByUri = new Map<string, Resource>();
  /** Resources by position. */
  readonly #resources = new Map<string, Resource>();
  /** Positions of all schema objects. Schemas below keywords without a meaning are not among them. */
  readonly #positions = new Set<string>();
  /** Scopes by their JSON. */
  readonly #scopes = new Map<string, Scope>();
  /** Results of `#enter`: a large document enters the same resources again and again. */
  readonly #entered = new Map<Scope, Map<Resource, Scope>>();
  readonly #hasDynamicReferences: boolean;
  /** Copies of schemas for other scopes than at their position, by name in `$defs` of the result. */
  readonly #copies: { readonly pointer: string; readonly scope: Scope; readonly name: string }[] = [];
  /** Names of the copies by scope and position. */
  readonly #copyNames = new Map<Scope, Map<string, string>>();
  /** Number of schemas in the result so far. */
  #size = 0;

  constructor(document: SchemaObject, hasDynamicReferences: boolean) {
    this.#document = document;
    this.#hasDynamicReferences = hasDynamicReferences;
    this.#index(document, "", { pointer: "", uri: NO_URI, parent: null, anchors: new Map(), dynamicAnchors: new Map() });
  }

  /** Returns the equivalent document without identifiers. */
  resolved(): SchemaObject {
    const root = getOrThrow(this.#resources, "");
    const document = this.#rewritten(this.#document, "", root, this.#scopeAt(root), "original");
    const copies: Record<string, unknown> = {};
    // Rewriting a copy may add further copies to the list.
    for (const { pointer, scope, name } of this.#copies) {
      const schema = atPointer(this.#document, pointer);
      copies[name] = isSchemaObject(schema) ? this.#rewritten(schema, pointer, this.#resourceAt(pointer), scope, "copy") : schema;
    }
    if (this.#copies.length === 0) return document;
    return { ...document, $defs: { ...(document["$defs"] as object | undefined), ...copies } };
  }

  /**
   * Registers the identifiers of a schema and its parts: first the resource that its `$id` begins, then its anchors in that resource.
   *
   * @param around - Resource that contains the schema; for the document, the document itself.
   */
  #index(schema: SchemaObject, pointer: string, around: Resource): void {
    const stringAt = (keyword: string): string | null => {
      const value = schema[keyword];
      if (value === undefined || typeof value === "string") return value ?? null;
      throw invalid(keyword, `#${pointer}`, "a string", value);
    };
    const id = stringAt("$id");
    let resource = around;
    // Drafts 6 and 7 write an anchor as `$id`.
    if (pointer === "" || (id !== null && !id.startsWith("#"))) {
      const uri = id === null || id.startsWith("#") ? around.uri : resolvedUri(id, around.uri);
      if (uri === null) throw invalid("$id", `#${pointer}`, "a URI, or a reference that its base can resolve", id);
      resource = { pointer, uri, parent: pointer === "" ? null : around, anchors: new Map(), dynamicAnchors: new Map() };
      const namesake = this.#resourcesByUri.get(uri);
      if (namesake !== undefined && !isSameJson(atPointer(this.#document, namesake.pointer), schema))
        throw invalid("$id", `#${pointer}`, `different from the one at #${namesake.pointer}`, id);
      this.#resourcesByUri.set(uri, resource);
      this.#resources.set(pointer, resource);
    }
    this.#positions.add(pointer);
    const dynamicAnchor = stringAt("$dynamicAnchor");
    const anchorInId = id?.startsWith("#") === true ? id.slice(1) : null;
    for (const anchor of [stringAt("$anchor"), dynamicAnchor, anchorInId]) {
      if (anchor === null || anchor === "") continue;
      const otherPointer = resource.anchors.get(anchor);
      if (otherPointer !== undefined && otherPointer !== pointer && !isSameJson(atPointer(this.#document, otherPointer), schema))
        throw invalid("$anchor", `#${pointer}`, `different from the one at #${otherPointer}`, anchor);
      resource.anchors.set(anchor, pointer);
    }
    if (dynamicAnchor !== null) resource.dynamicAnchors.set(dynamicAnchor, pointer);
    if (schema["$recursiveAnchor"] === true && resource.pointer === pointer) resource.dynamicAnchors.set(RECURSIVE, pointer);
    withParts(schema, (part, ...keys) => this.#index(part, pointer + keys.map(pointerStep).join(""), resource));
  }

  /** Returns the innermost resource that contains a position. */
  #resourceAt(pointer: string): Resource {
    for (let at = pointer; ; at = at.slice(0, at.lastIndexOf("/"))) {
      const resource = this.#resources.get(at);
      if (resource !== undefined) return resource;
    }
  }

  /** Returns the scope inside a resource that is entered from another scope: outer anchors take precedence. */
  #enter(scope: Scope, resource: Resource): Scope {
    if (!this.#hasDynamicReferences) return NO_ANCHORS;
    const enteredFromScope = getOrInsert(this.#entered, scope, () => new Map<Resource, Scope>());
    return getOrInsert(enteredFromScope, resource, () => {
      const entered: Scope = new Map([...resource.dynamicAnchors, ...scope]);
      const key = JSON.stringify([...entered].toSorted(([a], [b]) => (a < b ? -1 : 1)));
      return getOrInsert(this.#scopes, key, () => entered);
    });
  }

  /** Returns the scope of a resource that is entered from the document through the resources around it, not by a reference. */
  #scopeAt(resource: Resource): Scope {
    return this.#enter(resource.parent === null ? NO_ANCHORS : this.#scopeAt(resource.parent), resource);
  }

  /**
   * Returns a schema for the result: without identifiers, and with references that are JSON pointers in the result.
   *
   * @param kind - `copy` for a copy of the schema for another scope. Copies have no definitions, which stay at their position.
   */
  #rewritten(schema: SchemaObject, pointer: string, resource: Resource, scope: Scope, kind: "original" | "copy"): SchemaObject {
    this.#size++;
    if (this.#size > MAX_SCHEMAS)
      throw new ArgumentError(`Expected a schema of at most ${MAX_SCHEMAS} parts, with those that dynamic references need repeatedly`);
    const plainSchema = omit(schema, ...IDENTIFIERS, ...REFERENCES, ...(kind === "copy" ? DEFINITIONS : []));
    const result = withParts(plainSchema, (part, ...keys) => {
      const partPointer = pointer + keys.map(pointerStep).join("");
      const partResource = this.#resources.get(partPointer);
      if (partResource === undefined) return this.#rewritten(part, partPointer, resource, scope, kind);
      return this.#rewritten(part, partPointer, partResource, this.#enter(scope, partResource), kind);
    });
    const [reference, ...furtherReferences] = REFERENCES.filter((keyword) => keyword in schema).map((keyword) => ({
      $ref: this.#reference(keyword, schema[keyword], pointer, resource, scope),
    }));
    if (reference === undefined) return result;
    if (furtherReferences.length === 0) return { ...result, ...reference };
    return { ...result, ...reference, allOf: [...asList(result["allOf"]), ...furtherReferences] };
  }

  /** Returns the reference in the result that replaces a reference of the document. */
  #reference(keyword: Keyword, value: unknown, pointer: string, resource: Resource, scope: Scope): string {
    const { position, anchor } = this.#resolve(keyword, value, pointer, resource);
    const isDynamic = keyword !== "$ref" && anchor !== null && this.#resourceAt(position).dynamicAnchors.get(anchor) === position;
    const target = isDynamic ? (scope.get(anchor) ?? position) : position;
    const targetResource = this.#resourceAt(target);
    const entered = this.#enter(scope, targetResource);
    // In the scope of its own position, the schema there can be used; otherwise a copy for the scope.
    if (this.#positions.has(target) && entered === this.#scopeAt(targetResource)) return referenceTo(target);
    const copyNames = getOrInsert(this.#copyNames, entered, () => new Map<string, string>());
    const copyName = getOrInsert(copyNames, target, () => this.#copy(target, entered));
    return referenceTo(`/$defs${pointerStep(copyName)}`);
  }

  /** Adds a copy of the schema at a position for another scope, and returns its name in `$defs` of the result. */
  #copy(pointer: string, scope: Scope): string {
    const definitions = this.#document["$defs"];
    let name = `${pointer.slice(pointer.lastIndexOf("/") + 1)}:${this.#copies.length + 1}`;
    while (isSchemaObject(definitions) && Object.hasOwn(definitions, name)) name += ":";
    this.#copies.push({ pointer, scope, name });
    return name;
  }

  /** Returns the position of a reference without regard to the scope, and its anchor, if it has one. */
  #resolve(
    keyword: Keyword,
    value: unknown,
    pointer: string,
    from: Resource,
  ): { readonly position: string; readonly anchor: string | null } {
    const path = `#${pointer}`;
    if (typeof value !== "string") throw invalid(keyword, path, "a string", value);
    const [reference = "", fragment = ""] = value.split(/#(.*)/s);
    const uri = reference === "" ? from.uri : resolvedUri(reference, from.uri);
    const resource = uri === null ? undefined : this.#resourcesByUri.get(uri);
    if (resource === undefined) throw inOtherDocument(keyword, path, value);
    const place = decoded(fragment, keyword, path);
    if (place === "") return { position: resource.pointer, anchor: keyword === "$recursiveRef" ? RECURSIVE : null };
    const position = place.startsWith("/") ? resource.pointer + place : resource.anchors.get(place);
    const found = position === undefined ? undefined : atPointer(this.#document, position);
    if (position === undefined || found === undefined) throw invalid(keyword, path, "a place that exists", value);
    return { position, anchor: place.startsWith("/") ? null : place };
  }
}

/** Returns a URI without its fragment; null if the reference is malformed, or its base is not hierarchical. */
function resolvedUri(reference: string, base: string): string | null {
  if (!URL.canParse(reference, base)) return null;
  const url = new URL(reference, base);
  url.hash = "";
  return url.href;
}

/** Finds a keyword in the JSON of a document that makes it necessary to resolve identifiers. */
const IDENTIFIED = /"\$(?:id|anchor|dynamicAnchor|dynamicRef|recursiveAnchor|recursiveRef)":/;

/**
 * Returns an equivalent document in which every reference is a JSON pointer: references by `$id` and anchor point to their schema, and
 * dynamic references to a copy of their schema for each scope in which they are reached.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a reference to another document.
 * @throws ArgumentError `E_ARGUMENT` for a malformed or ambiguous identifier, a place that does not exist, and too many parts.
 * @source JSON Schema Core, draft 2020-12, sections 8.2 and 9.
 */
export function withoutIdentifiers(document: Schema): Schema {
  if (typeof document === "boolean") return document;
  const text = JSON.stringify(document);
  return IDENTIFIED.test(text) ? new Identifiers(document, /"\$(?:dynamic|recursive)Ref":/.test(text)).resolved() : document;
}

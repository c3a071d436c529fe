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

/** Schema object of the document, as the evaluation reaches it. */
interface Place {
  /** Position in the document, a JSON pointer. */
  readonly pointer: string;
  /** Innermost resource that contains the position. */
  readonly resource: Resource;
  readonly scope: Scope;
}

/** Scope before any resource is entered. */
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

/**
 * Rewriting of one document without identifiers. Positions are JSON pointers from its root.
 *
 * A dynamic reference has another target for each scope in which it is reached. So the result has one version of each schema for each scope
 * that reaches it by reference: the version for the schema's own scope is at its position, all others are copies in `$defs`.
 */
class Identifiers {
  readonly #document: SchemaObject;
  readonly #resourcesByUri = new Map<string, Resource>();
  /** Resources by position. */
  readonly #resources = new Map<string, Resource>();
  /** Positions of all schema objects. Schemas below keywords without a meaning are not among them. */
  readonly #positions = new Set<string>();
  /** Scopes by their JSON. */
  readonly #scopes = new Map<string, Scope>();
  /** Results of `#scopeInside`: a large document enters the same resources again and again. */
  readonly #innerScopes = new Map<Scope, Map<Resource, Scope>>();
  readonly #hasDynamicReferences: boolean;
  /** Copies of schemas for other scopes than their own, by name in `$defs` of the result. */
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
    const document = this.#rewritten(this.#document, { pointer: "", resource: root, scope: this.#ownScope(root) }, "original");
    const copies: Record<string, unknown> = {};
    // Rewriting a copy may add further copies to the list.
    for (const { pointer, scope, name } of this.#copies) {
      const schema = atPointer(this.#document, pointer);
      const place = { pointer, resource: this.#resourceAt(pointer), scope };
      copies[name] = isSchemaObject(schema) ? this.#rewritten(schema, place, "copy") : schema;
    }
    if (this.#copies.length === 0) return document;
    return { ...document, $defs: { ...(document["$defs"] as object | undefined), ...copies } };
  }

  /**
   * Registers the identifiers of a schema and its parts: first the resource that its `$id` begins, then its anchors in that resource.
   *
   * @param around - Resource that contains the schema; for the document, a resource without `$id`.
   */
  #index(schema: SchemaObject, pointer: string, around: Resource): void {
    this.#positions.add(pointer);
    const id = identifier(schema, "$id", pointer);
    // Drafts 6 and 7 write an anchor as `$id`.
    const anchorInId = id?.startsWith("#") === true ? id.slice(1) : null;
    const resourceId = anchorInId === null ? id : null;
    const resource = pointer === "" || resourceId !== null ? this.#addResource(schema, pointer, { id: resourceId, around }) : around;
    this.#addAnchors(schema, pointer, { anchorInId, resource });
    withParts(schema, (part, ...keys) => this.#index(part, pointer + keys.map(pointerStep).join(""), resource));
  }

  /**
   * Adds the resource that begins at a schema.
   *
   * @param options - `id`: its `$id`, null for a document without one; `around`: resource that contains the schema, as in `#index`.
   */
  #addResource(schema: SchemaObject, pointer: string, { id, around }: { readonly id: string | null; readonly around: Resource }): Resource {
    const uri = id === null ? around.uri : resolvedUri(id, around.uri);
    if (uri === null) throw invalid("$id", `#${pointer}`, "a URI, or a reference that its base can resolve", id);
    const namesake = this.#resourcesByUri.get(uri);
    if (namesake !== undefined && !isSameJson(atPointer(this.#document, namesake.pointer), schema))
      throw invalid("$id", `#${pointer}`, `different from the one at #${namesake.pointer}`, id);
    const parent = pointer === "" ? null : around;
    const resource: Resource = { pointer, uri, parent, anchors: new Map(), dynamicAnchors: new Map() };
    this.#resourcesByUri.set(uri, resource);
    this.#resources.set(pointer, resource);
    return resource;
  }

  /** Adds the anchors of a schema to its resource. */
  #addAnchors(
    schema: SchemaObject,
    pointer: string,
    { anchorInId, resource }: { readonly anchorInId: string | null; readonly resource: Resource },
  ): void {
    const dynamicAnchor = identifier(schema, "$dynamicAnchor", pointer);
    for (const anchor of [identifier(schema, "$anchor", pointer), dynamicAnchor, anchorInId]) {
      if (anchor === null || anchor === "") continue;
      const otherPointer = resource.anchors.get(anchor);
      if (otherPointer !== undefined && otherPointer !== pointer && !isSameJson(atPointer(this.#document, otherPointer), schema))
        throw invalid("$anchor", `#${pointer}`, `different from the one at #${otherPointer}`, anchor);
      resource.anchors.set(anchor, pointer);
    }
    if (dynamicAnchor !== null) resource.dynamicAnchors.set(dynamicAnchor, pointer);
    if (schema["$recursiveAnchor"] === true && resource.pointer === pointer) resource.dynamicAnchors.set(RECURSIVE, pointer);
  }

  /** Returns the innermost resource that contains a position. */
  #resourceAt(pointer: string): Resource {
    for (let at = pointer; ; at = at.slice(0, at.lastIndexOf("/"))) {
      const resource = this.#resources.get(at);
      if (resource !== undefined) return resource;
    }
  }

  /** Returns the scope inside of a resource that is entered from another scope, whose anchors take precedence. */
  #scopeInside(resource: Resource, scope: Scope): Scope {
    // Without dynamic references, no anchor in a scope is ever read.
    if (!this.#hasDynamicReferences) return NO_ANCHORS;
    const scopesByResource = getOrInsert(this.#innerScopes, scope, () => new Map<Resource, Scope>());
    return getOrInsert(scopesByResource, resource, () => {
      const inside: Scope = new Map([...resource.dynamicAnchors, ...scope]);
      const key = JSON.stringify([...inside].toSorted(([a], [b]) => (a < b ? -1 : 1)));
      return getOrInsert(this.#scopes, key, () => inside);
    });
  }

  /** Returns a resource's own scope: it is entered from the document through the resources around it, and not by a reference. */
  #ownScope(resource: Resource): Scope {
    return this.#scopeInside(resource, resource.parent === null ? NO_ANCHORS : this.#ownScope(resource.parent));
  }

  /**
   * Returns a schema for the result: without identifiers, and with references that are JSON pointers in the result.
   *
   * @param kind - `copy` for a copy of the schema in `$defs`. Copies have no definitions, which stay at their position.
   */
  #rewritten(schema: SchemaObject, place: Place, kind: "original" | "copy"): SchemaObject {
    this.#size++;
    if (this.#size > MAX_SCHEMAS)
      throw new ArgumentError(`Expected a schema of at most ${MAX_SCHEMAS} parts, with those that dynamic references need repeatedly`);
    const plainSchema = omit(schema, ...IDENTIFIERS, ...REFERENCES, ...(kind === "copy" ? DEFINITIONS : []));
    const result = withParts(plainSchema, (part, ...keys) => {
      const pointer = place.pointer + keys.map(pointerStep).join("");
      const entered = this.#resources.get(pointer);
      const partPlace =
        entered === undefined ? { ...place, pointer } : { pointer, resource: entered, scope: this.#scopeInside(entered, place.scope) };
      return this.#rewritten(part, partPlace, kind);
    });
    const [reference, ...furtherReferences] = REFERENCES.filter((keyword) => keyword in schema).map((keyword) => ({
      $ref: this.#reference(keyword, schema[keyword], place),
    }));
    if (reference === undefined) return result;
    if (furtherReferences.length === 0) return { ...result, ...reference };
    return { ...result, ...reference, allOf: [...asList(result["allOf"]), ...furtherReferences] };
  }

  /** Returns the reference in the result that replaces a reference of the document. */
  #reference(keyword: Keyword, value: unknown, place: Place): string {
    const { position, anchor } = this.#resolve(keyword, value, place);
    const isDynamic = keyword !== "$ref" && anchor !== null && this.#resourceAt(position).dynamicAnchors.get(anchor) === position;
    const target = isDynamic ? (place.scope.get(anchor) ?? position) : position;
    const resource = this.#resourceAt(target);
    const scope = this.#scopeInside(resource, place.scope);
    // In its own scope, the schema at its position can be used; otherwise a copy for the scope.
    if (this.#positions.has(target) && scope === this.#ownScope(resource)) return referenceTo(target);
    const copyNames = getOrInsert(this.#copyNames, scope, () => new Map<string, string>());
    const copyName = getOrInsert(copyNames, target, () => this.#addCopy(target, scope));
    return referenceTo(`/$defs${pointerStep(copyName)}`);
  }

  /** Adds a copy of the schema at a position for another scope, and returns its name in `$defs` of the result. */
  #addCopy(pointer: string, scope: Scope): string {
    const definitions = this.#document["$defs"];
    let name = `${pointer.slice(pointer.lastIndexOf("/") + 1)}:${this.#copies.length + 1}`;
    while (isSchemaObject(definitions) && Object.hasOwn(definitions, name)) name += ":";
    this.#copies.push({ pointer, scope, name });
    return name;
  }

  /** Returns the target of a reference without regard to the scope: its position, and its anchor, null without one. */
  #resolve(
    keyword: Keyword,
    value: unknown,
    { pointer, resource: base }: Place,
  ): { readonly position: string; readonly anchor: string | null } {
    const path = `#${pointer}`;
    if (typeof value !== "string") throw invalid(keyword, path, "a string", value);
    const [reference = "", encodedFragment = ""] = value.split(/#(.*)/s);
    const uri = reference === "" ? base.uri : resolvedUri(reference, base.uri);
    const resource = uri === null ? undefined : this.#resourcesByUri.get(uri);
    if (resource === undefined) throw inOtherDocument(keyword, path, value);
    const fragment = decoded(encodedFragment, keyword, path);
    if (fragment === "") return { position: resource.pointer, anchor: keyword === "$recursiveRef" ? RECURSIVE : null };
    const isPointer = fragment.startsWith("/");
    const position = isPointer ? resource.pointer + fragment : resource.anchors.get(fragment);
    if (position === undefined || atPointer(this.#document, position) === undefined)
      throw invalid(keyword, path, "a place that exists", value);
    return { position, anchor: isPointer ? null : fragment };
  }
}

/** Returns an identifier of a schema; null without one. */
function identifier(schema: SchemaObject, keyword: string, pointer: string): string | null {
  const value = schema[keyword];
  if (value === undefined) return null;
  if (typeof value !== "string") throw invalid(keyword, `#${pointer}`, "a string", value);
  return value;
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

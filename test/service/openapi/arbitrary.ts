/** Values for the JSON schemas of the OpenAPI document: ones that fit, and ones that are spoiled in one place. */
import fc from "fast-check";

export type Schema = { readonly [keyword: string]: any };

/** Generates values for a schema; references are resolved in `document`. */
export class SchemaArbitraries {
  readonly #document: Schema;
  readonly #ids: readonly string[];

  /** @param ids - Identifiers of objects that exist. */
  constructor(document: Schema, ids: readonly string[]) {
    this.#document = document;
    this.#ids = ids;
  }

  resolve(schema: Schema): Schema {
    const reference = schema["$ref"] as string | undefined;
    if (reference === undefined) return schema;
    const target = reference
      .slice("#/".length)
      .split("/")
      .reduce((part, key) => part[key], this.#document as any);
    return this.resolve(target as Schema);
  }

  /** Values that fit a schema. @param depth - Levels of objects and arrays that are still filled. */
  fitting(given: Schema, depth = 3): fc.Arbitrary<any> {
    const schema = this.resolve(given);
    if (schema["anyOf"] !== undefined) return fc.oneof(...schema["anyOf"].map((each: Schema) => this.fitting(each, depth)));
    if ("const" in schema) return fc.constant(schema["const"]);
    if (schema["enum"] !== undefined) return fc.constantFrom(...schema["enum"]);
    const types: readonly (string | undefined)[] = Array.isArray(schema["type"]) ? schema["type"] : [schema["type"]];
    return fc.oneof(...types.map((type) => this.#ofType(type, schema, depth)));
  }

  #ofType(type: string | undefined, schema: Schema, depth: number): fc.Arbitrary<any> {
    switch (type) {
      case "null":
        return fc.constant(null);
      case "boolean":
        return fc.boolean();
      case "integer":
        return fc.integer({ min: Math.max(schema["minimum"] ?? -100, -1e6), max: Math.min(schema["maximum"] ?? 100, 1e6) });
      case "number": {
        const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema;
        const min = minimum ?? exclusiveMinimum ?? -1e6;
        const max = maximum ?? exclusiveMaximum ?? 1e6;
        const excluded = { minExcluded: exclusiveMinimum !== undefined, maxExcluded: exclusiveMaximum !== undefined };
        return fc.double({ min, max, noNaN: true, noDefaultInfinity: true, ...excluded }).map((value) => (value === 0 ? 0 : value));
      }
      case "string":
        return this.#string(schema);
      case "array": {
        const { items = {}, minItems = 0 } = schema;
        return fc.array(this.fitting(items, depth - 1), { minLength: minItems, maxLength: depth > 0 ? Math.max(minItems, 2) : minItems });
      }
      case "object":
        return this.#object(schema, depth);
      default:
        return fc.jsonValue({ maxDepth: 1 });
    }
  }

  #string(schema: Schema): fc.Arbitrary<string> {
    if (schema["format"] === "uuid") return fc.oneof(fc.constantFrom(...this.#ids), fc.uuid({ version: 4 }));
    if (schema["pattern"] !== undefined) {
      const pattern = new RegExp(schema["pattern"], "u");
      // fast-check makes no texts for assertions; the one pattern that has some is of paths.
      if (schema["pattern"].includes("(?!"))
        return fc
          .array(fc.string({ minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 3 })
          .map((parts) => parts.join("/"))
          .filter((text) => pattern.test(text));
      return fc.stringMatching(pattern, { maxLength: Math.min(schema["maxLength"] ?? 64, 64) });
    }
    const [minLength, maxLength] = [schema["minLength"] ?? 0, Math.min(schema["maxLength"] ?? 12, 12)];
    return fc.oneof(fc.string({ minLength, maxLength }), fc.string({ unit: "grapheme", minLength, maxLength }));
  }

  #object(schema: Schema, depth: number): fc.Arbitrary<object> {
    const required: readonly string[] = schema["required"] ?? [];
    const members = Object.entries<Schema>(schema["properties"] ?? {}).filter(([name]) => depth > 0 || required.includes(name));
    // Most optional members are absent: a body with all of them contradicts itself.
    const record = fc.record(
      Object.fromEntries(
        members.map(([name, each]) => {
          const value = this.fitting(each, depth - 1);
          return [name, required.includes(name) ? value : fc.option(value, { freq: 1, nil: undefined })];
        }),
      ),
    );
    const { additionalProperties: others } = schema;
    const extra =
      others === undefined || others === false || depth <= 0
        ? fc.constant({})
        : fc.dictionary(fc.string({ minLength: 1, maxLength: 5 }), this.fitting(others === true ? {} : others, depth - 1), { maxKeys: 1 });
    return fc.tuple(extra, record).map(([more, known]) => JSON.parse(JSON.stringify({ ...more, ...known })) as object);
  }

  /** Values of a schema that were spoiled in one place; some of them still fit. */
  spoiled(schema: Schema): fc.Arbitrary<any> {
    return fc
      .tuple(this.fitting(schema), fc.nat(), fc.jsonValue({ maxDepth: 1 }))
      .map(([value, place, other]) => spoil(value, place, other));
  }
}

/** Replaces one of the places inside a value. */
function spoil(value: unknown, place: number, other: unknown): unknown {
  const places: (() => unknown)[] = [() => other];
  const walk = (node: unknown, put: (changed: unknown) => unknown): void => {
    if (typeof node !== "object" || node === null) return;
    for (const key of Object.keys(node)) {
      const replaced = (changed: unknown): unknown =>
        put(
          Array.isArray(node) ? node.map((item: unknown, index) => (String(index) === key ? changed : item)) : { ...node, [key]: changed },
        );
      places.push(() => replaced(other));
      walk((node as Record<string, unknown>)[key], replaced);
    }
    if (!Array.isArray(node)) places.push(() => put({ ...node, unheard: other }));
  };
  walk(value, (changed) => changed);
  return places[place % places.length]!();
}

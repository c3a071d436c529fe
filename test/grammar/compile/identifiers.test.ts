/** Identifiers of schemas, resolved to JSON pointers. */
import { describe, expect, it } from "vitest";
import { withoutIdentifiers } from "../../../src/text/grammar/compile/schema/identifiers.ts";
import { compileSchema } from "./support.ts";

describe("a document without identifiers of its own", () => {
  it("keeps a document that has none", () => {
    const document = { $ref: "#/$defs/a", $defs: { a: { type: "integer" } } };
    expect(withoutIdentifiers(document)).toBe(document);
    expect(withoutIdentifiers(true)).toBe(true);
  });

  it("has pointers in place of identifiers, and schemas at their position", () => {
    const document = {
      $id: "https://example.com/a",
      properties: { x: { $ref: "b#c" }, y: { $ref: "#/properties/x" }, $id: { type: "string" } },
      $defs: { "b/%": { $id: "b", items: { $anchor: "c", type: "null" } } },
    };
    expect(withoutIdentifiers(document)).toEqual({
      properties: { x: { $ref: "#/$defs/b~1%25/items" }, y: { $ref: "#/properties/x" }, $id: { type: "string" } },
      $defs: { "b/%": { items: { type: "null" } } },
    });
  });

  it("has a copy of a schema for each scope in which a dynamic reference of it is reached", () => {
    const list = (name: string, type: string) => ({ $id: name, $ref: "list", $defs: { i: { $dynamicAnchor: "item", type } } });
    const document = {
      $id: "https://example.com/root",
      anyOf: [{ $ref: "texts" }, { $ref: "numbers" }],
      $defs: {
        list: { $id: "list", type: "array", items: { $dynamicRef: "#item" }, $defs: { i: { $dynamicAnchor: "item" } } },
        texts: list("texts", "string"),
        numbers: list("numbers", "number"),
      },
    };
    const { language } = compileSchema(document);
    expect(['["a"]', "[1]", "[]", '["a",1]'].map((text) => language.accepts(text))).toEqual([true, true, true, false]);
    const { $defs } = withoutIdentifiers(document) as { readonly $defs: Readonly<Record<string, object>> };
    expect(Object.keys($defs)).toEqual(["list", "texts", "numbers", "list:1", "list:2"]);
    expect([$defs["list"], $defs["list:1"], $defs["list:2"]]).toEqual([
      { type: "array", items: { $ref: "#/$defs/list/$defs/i" }, $defs: { i: {} } },
      { type: "array", items: { $ref: "#/$defs/texts/$defs/i" } },
      { type: "array", items: { $ref: "#/$defs/numbers/$defs/i" } },
    ]);
  });

  it("supports the identifiers of drafts 6 to 2019-09", () => {
    const anchored = { $ref: "#count", definitions: { a: { $id: "#count", type: "integer" } } };
    expect(["1", '"a"'].map((text) => compileSchema(anchored).language.accepts(text))).toEqual([true, false]);
    const recursive = {
      $id: "https://example.com/closed",
      $recursiveAnchor: true,
      $ref: "tree",
      properties: { extra: { type: "integer" } },
      $defs: {
        tree: { $id: "tree", $recursiveAnchor: true, type: "object", properties: { child: { $recursiveRef: "#" } } },
      },
    };
    const { language } = compileSchema(recursive);
    expect(['{"child":{"extra":1}}', '{"child":{"extra":"a"}}'].map((text) => language.accepts(text))).toEqual([true, false]);
  });

  it("supports a reference into a keyword without meaning, and beside a dynamic reference", () => {
    const document = {
      $id: "https://example.com/api",
      $ref: "#/components/schemas/a",
      $dynamicRef: "#b",
      components: { schemas: { a: { type: "integer", $id: "not-an-identifier" } } },
      $defs: { b: { $dynamicAnchor: "b", minimum: 3 } },
    };
    const { language } = compileSchema(document);
    expect(["3", "2", "3.5"].map((text) => language.accepts(text))).toEqual([true, false, false]);
  });

  it.each([
    ["an identifier that is no string", { $id: 5 }, /`\$id`.*a string/],
    ["an identifier that is no URI", { $defs: { a: { $id: "http://[" } } }, /`\$id`.*URI/],
    [
      "two schemas with one identifier",
      { $defs: { a: { $id: "x" }, b: { $id: "x", type: "null" } } },
      /`\$id`.*different from.*#\/\$defs\/a/,
    ],
    ["two schemas with one anchor", { $defs: { a: { $anchor: "x" }, b: { $anchor: "x", type: "null" } } }, /`\$anchor`.*different from/],
    ["another document", { $id: "https://example.com/a", $ref: "b" }, /`\$ref`.*another document/],
    ["an unknown anchor", { $id: "https://example.com/a", $ref: "#b" }, /`\$ref`.*a place that exists/],
    ["an unknown position", { $id: "https://example.com/a", $ref: "#/$defs/b" }, /`\$ref`.*a place that exists/],
    ["a reference that is no string", { $id: "https://example.com/a", $dynamicRef: 1 }, /`\$dynamicRef`.*a string/],
  ])("rejects %s", (_name, document, message) => {
    expect(() => withoutIdentifiers(document)).toThrow(message);
  });

  it("rejects documents with more copies than parts of a schema are allowed", () => {
    const levels = Array.from({ length: 16 }, (_, at) => at);
    // Each level is reached with its anchor set or not: 2 ** 16 scopes.
    const $defs = Object.fromEntries(
      levels.flatMap((at) => [
        [`l${at}`, { $id: `l${at}`, anyOf: at === 15 ? [{ $dynamicRef: "l0#a0" }] : [{ $ref: `l${at + 1}` }, { $ref: `m${at}` }] }],
        [`m${at}`, { $id: `m${at}`, $dynamicAnchor: `a${at}`, $ref: `l${Math.min(at + 1, 15)}` }],
      ]),
    );
    Object.assign($defs["l0"] as object, { $defs: { a: { $dynamicAnchor: "a0" } } });
    expect(() => withoutIdentifiers({ $id: "https://example.com/", $ref: "l0", $defs })).toThrow(/at most 20000 parts/);
  });
});

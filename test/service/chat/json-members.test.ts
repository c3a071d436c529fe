import { test } from "@fast-check/vitest";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { memberText, withMember, withoutMember } from "../../../src/service/chat/text/json-members.ts";

const keys = fc.constantFrom("model", "seed", 'a"b', "ключ", "", "__proto_");
const objects = fc.array(fc.tuple(keys, fc.jsonValue())).map((entries) => Object.fromEntries(entries) as Record<string, unknown>);
const spaces = fc.constantFrom(undefined, 2, "\t");

describe("the source text of an object", () => {
  test.prop([objects, keys, fc.jsonValue(), spaces])(
    "parses to the expected object after a member is set or removed",
    (object, name, value, space) => {
      const json = JSON.stringify(object, null, space);
      const { [name]: _removed, ...rest } = JSON.parse(json) as Record<string, unknown>;
      expect(JSON.parse(withoutMember(json, name))).toEqual(rest);
      const changed = withMember(json, name, JSON.stringify(value));
      expect(JSON.parse(changed)).toEqual({ ...rest, [name]: JSON.parse(JSON.stringify(value)) as unknown });
      expect(JSON.parse(memberText(changed, name)!)).toEqual(JSON.parse(JSON.stringify(value)));
    },
  );

  const entries = fc.array(fc.tuple(fc.constantFrom('"a"', '"\\u0061"', '"b"'), fc.constantFrom("1", "{}", '"x"', "[1 ]")), {
    maxLength: 6,
  });
  test.prop([entries, fc.constantFrom("", " ", "\n ")])("loses all occurrences of a removed member", (given, space) => {
    const text = (of: typeof given) => `{${of.map(([key, value]) => `${space}${key}${space}:${value}`).join(`${space},`)}${space}}`;
    const kept = given.filter(([key]) => key === '"b"');
    const without = withoutMember(text(given), "a");
    expect(without.replace(/\s/g, "")).toBe(text(kept).replace(/\s/g, ""));
    expect(withoutMember(text(kept), "a")).toBe(text(kept));
  });

  it("keeps every other byte: long integers, duplicate members, white space", () => {
    const json = '{ "seed" : 9223372036854775807,\n "m\\u006fdel":"x" , "t": 1.0e5, "model": "y" }';
    expect(withMember(json, "model", '"z"')).toBe('{"model":"z", "seed" : 9223372036854775807,\n  "t": 1.0e5 }');
    expect(memberText(json, "model")).toBe('"y"');
    expect(withoutMember('{"model":1}', "model")).toBe("{}");
  });
});

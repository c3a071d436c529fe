import { describe, expect, test } from "vitest";
import { compile } from "../../../src/text/tokenizer/jinja/index.ts";
import { parseJsonValue } from "../../../src/text/tokenizer/jinja/json.ts";

const printed = (json: string): string =>
  compile("{{ value | tojson }}").render({ value: parseJsonValue(json) }, { maxSteps: 1_000_000, maxTextLength: 1_000_000 });

describe("parseJson", () => {
  test.each([
    "[1, 1.0, -0.0, 0.1, 12345678901234567890, true, false, null]",
    '{"b": 1, "10": 2, "9": {"": []}, "a": "x\\"y\\\\"}',
    '"é\\n"',
    "{}",
    "7",
  ])("parses %s", (json) => {
    expect(printed(json)).toBe(json);
  });

  test("rejects invalid JSON and deep nesting", () => {
    for (const text of ["", "{", "[1,]", "{a: 1}", "NaN", "1 2"]) expect(() => parseJsonValue(text)).toThrow(SyntaxError);
    expect(() => parseJsonValue("[".repeat(5000) + "]".repeat(5000))).toThrow(/levels deep|nested/);
  });
});

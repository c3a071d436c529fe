import { describe, expect, it } from "vitest";
import { chatCompletionRequest } from "../../src/schema/index.ts";
import { shown } from "../../src/service/chat/coercion.ts";
import { REFUSED_FIELDS } from "../../src/service/chat/refused-fields.ts";
import { CARRIED_FIELDS } from "../../src/service/chat/fields.ts";
import { read } from "./files.ts";

interface Row {
  readonly state: string;
  readonly text: string;
}

const rows = new Map(
  [...read("docs/reference/chat-completions.md").matchAll(/^\| `(\w+)` \| ([^|]+) \| (.*) \|$/gmu)].map(
    ([, field = "", state = "", text = ""]): [string, Row] => [field, { state, text }],
  ),
);
const fields = Object.keys(chatCompletionRequest.shape);

describe("the reference of chat completion fields", () => {
  it("has a row for every field of the schema and for nothing else", () => {
    expect([...rows.keys()].toSorted()).toEqual(fields.toSorted());
  });

  it.each(fields)("says of `%s` what the service does with it", (field) => {
    const { state, text } = rows.get(field)!;
    const refused = REFUSED_FIELDS[field];
    expect(Object.hasOwn(CARRIED_FIELDS, field)).toBe(refused === undefined);
    if (refused === undefined) {
      expect(state).toBe("honoured");
      return;
    }
    expect(state).toBe("null or default only");
    const accepted = refused.allowed.length === 0 ? "null" : refused.allowed.map((value) => `\`${shown(value)}\``).join(", ");
    expect(text).toBe(accepted);
  });
});

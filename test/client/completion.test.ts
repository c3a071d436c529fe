import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { parseCompletion } from "../../src/library/client/completion.ts";
import { ProtocolError } from "../../src/library/client/index.ts";
import { chatCompletion } from "../../src/base/schema/index.ts";

/** Usually a valid value, sometimes any other JSON value. */
const mostly = <T>(value: fc.Arbitrary<T>) =>
  fc.oneof(
    { weight: 30, arbitrary: value },
    { weight: 1, arbitrary: fc.oneof(fc.constant(null), fc.string(), fc.double(), fc.constant([[]])) },
  );
const ids = mostly(fc.array(mostly(fc.nat(5000)), { maxLength: 4 }));
const alternative = fc.record({ token: fc.string(), logprob: fc.constant(-1), extra: fc.nat() }, { requiredKeys: ["token", "logprob"] });
const entry = fc.record(
  {
    token: mostly(fc.string()),
    logprob: mostly(fc.double()),
    bytes: ids,
    top_logprobs: mostly(fc.array(alternative, { maxLength: 1 })),
    x: fc.nat(),
  },
  { requiredKeys: ["token", "logprob"] },
);
const choice = fc.record(
  {
    index: mostly(fc.nat(3)),
    message: mostly(fc.record({ role: fc.constant("assistant"), content: mostly(fc.string()) }, { requiredKeys: ["role"] })),
    logprobs: mostly(fc.record({ content: mostly(fc.array(entry, { maxLength: 3 })), refusal: fc.constant(null) }, { requiredKeys: [] })),
    finish_reason: mostly(fc.constant("stop")),
    token_ids: ids,
  },
  { requiredKeys: ["message"] },
);
const completion = fc.record(
  {
    id: mostly(fc.string()),
    model: mostly(fc.string()),
    choices: mostly(fc.array(choice, { maxLength: 2 })),
    usage: mostly(fc.record({ prompt_tokens: fc.nat() }, { requiredKeys: [] })),
    prompt_token_ids: ids,
    other: fc.string(),
  },
  { requiredKeys: ["id", "model", "choices", "usage"] },
);

describe("parseCompletion", () => {
  test.prop([completion.map((value): unknown => JSON.parse(JSON.stringify(value)))], { numRuns: 1000 })(
    "accepts and rejects the same values as the schema, and returns the same result",
    (value) => {
      const copy: unknown = structuredClone(value);
      const expected = chatCompletion.safeParse(copy);
      if (expected.success) expect(parseCompletion(value)).toEqual(expected.data);
      else expect(() => parseCompletion(value)).toThrow(ProtocolError);
    },
  );

  it("reports the path of an invalid value", () => {
    const content = [{ token: "a", logprob: "-1", bytes: null, top_logprobs: [] }];
    const value = { id: "c", model: "m", usage: {}, choices: [{ index: 0, message: { role: "assistant" }, logprobs: { content } }] };
    expect(() => parseCompletion(value)).toThrow(/choices\.0\.logprobs\.content\.0\.logprob/);
    expect(() => parseCompletion(null)).toThrow(ProtocolError);
  });

  it("does not copy the tokens", () => {
    const content = [{ token: "a", logprob: -1, bytes: [97], top_logprobs: [] }];
    const value = { id: "c", model: "m", usage: {}, choices: [{ message: { role: "assistant" }, token_ids: [5], logprobs: { content } }] };
    const [choice] = parseCompletion(value).choices;
    expect(choice!.logprobs!.content).toBe(content);
    expect(choice).toMatchObject({ index: 0, token_ids: [5] });
  });
});

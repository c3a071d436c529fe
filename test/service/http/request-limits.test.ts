/** Bounds of requests: each is refused by name when it is exceeded, before anything looks at the contents. */
import { describe, expect, it } from "vitest";
import type { ZodType } from "zod";
import { wireRequest } from "../../../src/service/chat/request/fields.ts";
import { checkFieldLimits, REQUEST_LIMITS } from "../../../src/service/http/request-limits.ts";
import { checkJsonSize, parseNestedJson } from "../../../src/base/util/json-size.ts";
import { goodGroup, MODELS, RL_JOBS, startTestService, UNKNOWN_ID } from "../support.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const nested = (depth: number) => `${"[".repeat(depth)}${"]".repeat(depth)}`;

describe("the size of a JSON text", () => {
  const limit = { depth: 3, values: 6, stringBytes: 4 };

  it.each([
    ["[[[]]]", null],
    ["[[[[]]]]", "3 levels"],
    ['{"a":{"b":{"c":1}}}', null],
    ["[1,2,3,4]", null],
    ["[1,2,3,4,5,6,7]", "6 values"],
    ['"abcd"', null],
    ['"abcde"', "4 bytes"],
    ['{"abcde":1}', "4 bytes"],
    // Brackets, commas and escaped quotes within strings are text.
    ['"[[[["', null],
    ['",,,,"', null],
    [String.raw`"\"[["`, null],
    [String.raw`"\\",[[[[]]]]`, "3 levels"],
    ['"[[', null],
  ])("%s", (text, refusal) => {
    const check = () => checkJsonSize(bytes(text), limit);
    if (refusal === null) expect(check).not.toThrow();
    else expect(check).toThrow(refusal);
  });

  it("also applies to JSON texts inside strings", () => {
    expect(parseNestedJson(nested(128))).toHaveLength(1);
    expect(() => parseNestedJson(nested(129))).toThrow(/128 levels/);
    expect(() => parseNestedJson("[")).toThrow(SyntaxError);
  });
});

describe("the limits of fields", () => {
  it.each([
    [{ a: "12345" }, { a: { characters: 4 } }, "`a` to have at most 4 characters, got 5"],
    [{ a: [1, 2, 3] }, { a: { items: 2 } }, "`a` to have at most 2 items, got 3"],
    [{ a: { b: 1, c: 2 } }, { a: { items: 1 } }, "`a` to have at most 1 members, got 2"],
    [{ a: ["ab", "abc"] }, { a: { each: 2 } }, "`a` to have at most 2 characters in each item, got 3"],
    [{ a: { abc: 1 } }, { a: { each: 2 } }, "`a` to have at most 2 characters in each key, got 3"],
    [{ a: ["ab", "ab"] }, { a: { total: 3 } }, "`a` to have at most 3 characters in all, got 4"],
    [{ a: { b: 1 } }, { a: { json: 6 } }, "`a` to have at most 6 characters as JSON, got 7"],
    [{ a: [{ b: "x" }, { b: "xyz" }] }, { "a.*.b": { characters: 2 } }, "`a.1.b` to have at most 2 characters, got 3"],
    [{ a: { b: { c: [1, 2] } } }, { "a.b.c": { items: 1 } }, "`a.b.c` to have at most 1 items, got 2"],
  ])("reject %j with %j", (value, limits, message) => {
    expect(() => checkFieldLimits(value, limits)).toThrow(message);
  });

  it("ignore values of other types", () => {
    const limits = { a: { items: 1 }, "b.*.c": { characters: 1 }, d: { characters: 1 } };
    for (const value of [null, 7, "text", [], { a: null, b: 7, d: ["xyz"] }]) expect(() => checkFieldLimits(value, limits)).not.toThrow();
  });

  it("cover every chat field that is neither a number nor a boolean", () => {
    const scalars = Object.entries<ZodType>(wireRequest.shape)
      .filter(([, schema]) => [3, "3", true].some((value) => schema.safeParse(value).success) && !schema.safeParse("no number").success)
      .map(([name]) => name);
    const listed = new Set(Object.keys(REQUEST_LIMITS.chat.fields).map((path) => path.split(".")[0]));
    // One of three words.
    const unbounded = Object.keys(wireRequest.shape).filter((name) => !listed.has(name) && !scalars.includes(name));
    expect(unbounded).toEqual(["reasoning_effort"]);
  });
});

describe("a service", () => {
  it("answers 400 or 422, not 500, for JSON nested thousands of levels deep", async () => {
    const { call } = await startTestService();
    const json = { headers: { "content-type": "application/json" } };
    const chat = await call("POST", "/v1/chat/completions", `{"messages":${nested(5000)}}`, json);
    expect([chat.status, chat.body.error.message]).toEqual([400, "Expected JSON nested at most 128 levels deep, got more"]);
    const artifact = `{"project":"demo","name":"x","metadata":{"a":${nested(5000)}}}`;
    expect((await call("POST", "/v1/preview/artifacts", artifact, json)).status).toBe(422);
    expect((await call("POST", RL_JOBS, `{"model_id":"${UNKNOWN_ID}","trajectory_groups":${nested(5000)}}`, json)).status).toBe(422);
    const args = nested(5000);
    const calls = [{ id: "a", type: "function", function: { name: "f", arguments: `{"a":${args}}` } }];
    const messages = [
      { role: "user", content: "hi" },
      { role: "assistant", content: "", tool_calls: calls },
    ];
    expect((await call("POST", "/v1/chat/completions", { messages })).status).toBe(400);
  });

  it("limits the body per route", async () => {
    const { call } = await startTestService();
    const padded = (size: number) => `{"padding":"${"x".repeat(size)}"}`;
    const { chat, model } = REQUEST_LIMITS;
    expect((await call("POST", MODELS, padded(model.body.bytes))).status).toBe(413);
    const tooLong = await call("POST", "/v1/chat/completions", padded(chat.body.bytes));
    expect([tooLong.status, tooLong.body.error.message]).toEqual([413, expect.stringContaining(String(chat.body.bytes))]);
    // RL jobs alone have the service's.
    expect((await call("POST", RL_JOBS, padded(chat.body.stringBytes - 20))).status).toBe(422);
  });

  it("gives the same answers and errors for small and large bodies", async () => {
    const { call, ok } = await startTestService();
    const { id } = await ok("POST", MODELS, { project: "demo", name: "reverse", base_model: "tiny" });
    const body = (trajectories: number) => ({
      model_id: id,
      trajectory_groups: Array.from({ length: trajectories }, goodGroup),
      experimental_config: { learning_rate: 1e-3 },
    });
    for (const groups of [1, 700]) {
      expect((await call("POST", RL_JOBS, body(groups))).status).toBe(200);
      const wrong = body(groups);
      (wrong.trajectory_groups[0] as any).trajectories[1].messages_and_choices[0] = { role: 7 };
      expect((await call("POST", RL_JOBS, wrong)).body.error.param).toMatch(/^trajectory_groups\.0\.trajectories\.1\./);
      const unknown = { ...body(groups), model_id: UNKNOWN_ID };
      expect((await call("POST", RL_JOBS, unknown)).status).toBe(404);
    }
    for (const size of [10, 40_000]) {
      const metadata = Object.fromEntries(Array.from({ length: 5 }, (_, index) => [`key${index}`, "x".repeat(size)]));
      const answer = await call("POST", "/v1/preview/artifacts", { project: "demo", name: "data", metadata });
      expect(answer.status).toBe(size === 10 ? 200 : 422);
    }
    for (const length of [10, 300_000]) {
      const messages = [{ role: "user", content: "hello ".repeat(length) }];
      const chat = await call("POST", "/v1/chat/completions", { messages, max_tokens: 1 });
      expect([length, chat.status]).toEqual([length, length === 10 ? 200 : 400]);
      const nothing = await call("POST", "/v1/chat/completions", { messages, temperature: "hot" });
      expect([nothing.status, nothing.body.error.type]).toEqual([400, "Bad Request"]);
      expect(nothing.body.error.message).toContain("`temperature`");
    }
  });
});

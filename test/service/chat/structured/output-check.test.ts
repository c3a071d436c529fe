/** Validation of finished texts by finish reason, and the finish reason of forced calls that were cut. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startService, type RunningService } from "../../../../src/service/index.ts";
import { joinChoice, readEvents } from "../support.ts";

let service: RunningService;
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "chat-output-check-"));
  service = await startService({ dataDir: directory, logger: { info: () => {}, warn: () => {}, error: () => {} } });
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true });
});

function send(body: object): Promise<Response> {
  return fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({ messages: [{ role: "user", content: "say" }], max_tokens: 200, seed: 1, ...body }),
  });
}
async function post(body: object): Promise<{ status: number; body: any }> {
  const response = await send(body);
  return { status: response.status, body: await response.json() };
}

/** Schema with a grammar that matches only 50, which the schema excludes. */
const NEVER = { type: "integer", minimum: 50, maximum: 50, not: { const: 50 } };
const WITH_END = { include_stop_str_in_output: true, skip_special_tokens: false };
const tool = (name: string, parameters: object) => ({ type: "function", function: { name, parameters } });
const withX = (x: object) => ({ type: "object", properties: { x }, required: ["x"] });
const COMPACT = { structured_outputs: { regex: "overridden", disable_any_whitespace: true } };

describe("the validation of a finished text", () => {
  it.each([
    ["includes its end token", WITH_END],
    ["continues with end tokens", { ignore_eos: true, max_tokens: 12 }],
    ["continues with end tokens that it includes", { ...WITH_END, ignore_eos: true, max_tokens: 12 }],
  ])("fails a text that %s", async (_name, fields) => {
    const { status, body } = await post({ structured_outputs: { json: NEVER }, ...fields });
    expect([status, body.error?.error_code]).toEqual([422, "E_OUTPUT"]);
    const call = { tools: [tool("f", withX(NEVER))], tool_choice: { type: "function", function: { name: "f" } } };
    expect((await post({ ...call, ...fields, max_tokens: 60 })).status).toBe(422);
  });

  it("skips a text that a stop string or another stop token cut", async () => {
    for (const [stop, content] of [
      [{ stop: ["0"] }, "5"],
      [{ stop: ["0"], include_stop_str_in_output: true }, "50"],
    ] as const) {
      const { status, body } = await post({ structured_outputs: { json: NEVER }, ...stop });
      expect([status, body.choices?.[0].message.content, body.choices?.[0].finish_reason]).toEqual([200, content, "stop"]);
    }
    const [five] = (await post({ structured_outputs: { choice: ["5"] }, return_token_ids: true })).body.choices[0].token_ids;
    const { status, body } = await post({ structured_outputs: { json: NEVER }, stop_token_ids: [five] });
    expect([status, body.choices?.[0].message.content]).toEqual([200, ""]);
  });

  it.each(["constructor", "__proto__", "toString"])("works for a tool with the name %s", async (name) => {
    const free = tool(name, { type: "object" });
    for (const tool_choice of ["required", { type: "function", function: { name } }]) {
      const { status } = await post({ tools: [tool(name, withX(NEVER))], tool_choice, parallel_tool_calls: false });
      expect(status).toBe(422);
      // Only the other tool needs validation.
      const answer = await post({ tools: [free, tool("f", { ...withX(NEVER), type: "object" })], tool_choice, max_tokens: 100 });
      expect([200, 422]).toContain(answer.status);
    }
  });
});

describe("tool_choice required", () => {
  const tools = [tool("add", { ...withX({ type: "integer", minimum: 10, maximum: 99 }), additionalProperties: false })];
  const body = { tools, tool_choice: "required", parallel_tool_calls: false, ...COMPACT };

  it("returns finish reason length for a cut call; a stream returns tool_calls once a call has started, as vLLM does", async () => {
    const whole = await post({ ...body, return_token_ids: true });
    const count = whole.body.choices[0].token_ids.length as number;
    for (let max_tokens = 1; max_tokens <= count; max_tokens++) {
      const { choices } = (await post({ ...body, max_tokens })).body;
      const { finishes, toolCalls } = joinChoice((await readEvents(await send({ ...body, max_tokens, stream: true }))).chunks);
      expect(choices[0].finish_reason).toBe(max_tokens < count ? "length" : "tool_calls");
      expect(finishes).toEqual([toolCalls.length > 0 ? "tool_calls" : "length"]);
    }
  });

  it("parses the calls of a text that includes its end token", async () => {
    const { choices } = (await post({ ...body, ...WITH_END })).body;
    expect([choices[0].finish_reason, choices[0].message.content]).toEqual(["tool_calls", ""]);
    const { toolCalls, finishes } = joinChoice((await readEvents(await send({ ...body, ...WITH_END, stream: true }))).chunks);
    expect([toolCalls[0].function, finishes]).toEqual([choices[0].message.tool_calls[0].function, ["tool_calls"]]);
  });
});

/** Cases 73 to 80, and reasoning: parsing of the answer text. */
import { expect } from "vitest";
import { parrot, type ConformanceCase } from "../case.ts";
import { outsideAddress } from "../target.ts";

const PARAMETERS = { type: "object", properties: { a: { type: "integer" } }, required: ["a"], additionalProperties: false };
const ADD = { type: "function", function: { name: "add", description: "adds", parameters: PARAMETERS } };
const NOW = { type: "function", function: { name: "now" } };
const CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>';
const named = (name: string) => ({ type: "function", function: { name } });
const says = (text: string) => ({ messages: [{ role: "user", content: `say:</think>${text}` }] });

/** Returns the joined tool calls of a stream, and its finish reasons. */
function joinCalls(chunks: readonly any[]): { readonly calls: any[]; readonly ids: string[]; readonly finishes: string[] } {
  const parts = chunks.flatMap((chunk) => chunk.choices);
  const calls: any[] = [];
  const ids: string[] = [];
  for (const call of parts.flatMap((part) => part.delta.tool_calls ?? [])) {
    if (call.id) ids.push(call.id);
    calls[call.index] ??= { name: "", arguments: "" };
    calls[call.index].name += call.function?.name ?? "";
    calls[call.index].arguments += call.function?.arguments ?? "";
  }
  return { calls, ids, finishes: parts.map((part) => part.finish_reason).filter((reason) => reason !== null) };
}

export const tools: readonly ConformanceCase[] = [
  {
    number: 73,
    title: "returns no tool calls without tools, and rejects a tool_choice",
    fields: ["tools", "tool_choice"],
    run: async (target) => {
      for (const none of [{}, { tools: null }, { tools: [] }]) {
        const { message, finish_reason } = await target.choice({ ...none, seed: 1, max_tokens: 8 });
        expect([message.tool_calls ?? [], finish_reason === "tool_calls"]).toEqual([[], false]);
      }
      for (const tool_choice of ["auto", "required"])
        expect((await target.refused({ tool_choice })).message).toMatch(/tools.* must be set/);
    },
  },
  {
    number: 74,
    title: "rejects a named function that is not among the tools",
    fields: ["tools", "tool_choice"],
    run: async (target) => {
      expect(await target.refused({ tool_choice: named("add") })).toMatchObject({ status: 400 });
      for (const tool_choice of [named("nope"), {}, { type: "function" }])
        expect(await target.refused({ tools: [ADD], tool_choice })).toMatchObject({ status: 400, type: "Bad Request" });
    },
  },
  {
    number: 75,
    title: "a server without a tool parser rejects a tool_choice that requires one, with the reason",
    fields: ["tools", "tool_choice"],
    needs: { server: "bare", because: "no tool parser" },
    run: async (target) => {
      for (const tool_choice of ["auto", "required", named("add")])
        expect(await target.refused({ tools: [ADD], tool_choice })).toMatchObject({
          status: 400,
          type: "BadRequestError",
          message: expect.stringMatching(/tool_choice.*tool parser/),
        });
      await target.complete({ tools: [ADD], tool_choice: "none" });
    },
  },
  {
    number: 76,
    title: "a named tool: arguments by its schema, no content, finish stop; the same streamed",
    fields: ["tools", "tool_choice"],
    run: async (target) => {
      const body = { tools: [ADD, NOW], tool_choice: named("add"), seed: 1, max_tokens: 200, frequency_penalty: 2 };
      const { message, finish_reason } = await target.choice(body);
      expect(message.content).toBe("");
      expect(message.tool_calls).toMatchObject([{ type: "function", function: { name: "add" } }]);
      expect(Object.keys(JSON.parse(message.tool_calls[0].function.arguments))).toEqual(["a"]);
      expect(finish_reason).toBe("stop");
      const { calls, finishes } = joinCalls((await target.stream(body)).chunks);
      expect(calls).toEqual([{ name: "add", arguments: message.tool_calls[0].function.arguments }]);
      expect(finishes).toHaveLength(1);
    },
  },
  {
    number: 77,
    title: "required: at least one call, each valid for its tool, finish tool_calls; a tool without parameters gets {}",
    fields: ["tools", "tool_choice"],
    run: async (target) => {
      for (let seed = 0; seed < 4; seed++) {
        const body = { tools: [ADD, NOW], tool_choice: "required", seed, max_tokens: 200, frequency_penalty: 2 };
        const { message, finish_reason } = await target.choice(body);
        // Models other than the shipped one may be cut off.
        if (outsideAddress() !== null && finish_reason === "length") continue;
        expect(finish_reason).toBe("tool_calls");
        expect(message.content).toBe("");
        expect(message.tool_calls.length).toBeGreaterThan(0);
        for (const { id, function: called } of message.tool_calls) {
          expect(id).toMatch(/^chatcmpl-tool-/);
          const args = JSON.parse(called.arguments);
          if (called.name === "now") expect(args).toEqual({});
          else expect([called.name, Object.keys(args), Number.isInteger(args.a)]).toEqual(["add", ["a"], true]);
        }
      }
    },
  },
  {
    number: 79,
    title: "without parallel calls returns one call, with one id in the stream",
    fields: ["tools", "parallel_tool_calls"],
    needs: parrot(),
    run: async (target) => {
      const body = { ...says(CALL + CALL), tools: [ADD], parallel_tool_calls: false };
      const { message, finish_reason } = await target.choice(body);
      expect([message.tool_calls.length, finish_reason]).toEqual([1, "tool_calls"]);
      const streamed = joinCalls((await target.stream(body)).chunks);
      expect([streamed.ids.length, streamed.calls, streamed.finishes]).toEqual([
        1,
        [{ name: "add", arguments: '{"a": 1}' }],
        ["tool_calls"],
      ]);
      expect((await target.choice({ ...body, parallel_tool_calls: true })).message.tool_calls).toHaveLength(2);
    },
  },
  {
    number: 80,
    title: "calls in the history: accepts empty arguments, rejects invalid JSON",
    fields: ["messages"],
    run: async (target) => {
      const history = (args: string) => ({
        max_tokens: 1,
        messages: [
          { role: "user", content: "hello" },
          { role: "assistant", content: null, tool_calls: [{ id: "1", type: "function", function: { name: "add", arguments: args } }] },
          { role: "tool", tool_call_id: "1", content: "3" },
        ],
      });
      for (const args of ["", "{}", '{"a":1}']) await target.complete(history(args));
      expect(await target.refused(history("{a"))).toMatchObject({ status: 400, type: "BadRequestError" });
    },
  },
  {
    number: 94,
    title: "rejects an unknown reasoning effort; include_reasoning false omits the reasoning",
    fields: ["reasoning_effort", "include_reasoning"],
    run: async (target) => {
      expect(await target.refused({ reasoning_effort: "extreme" })).toMatchObject({ status: 400, type: "Bad Request" });
      await target.complete({ reasoning_effort: "low", max_tokens: 1 });
      expect((await target.choice({ include_reasoning: false, max_tokens: 4 })).message.reasoning).toBeNull();
    },
  },
  {
    number: 94,
    title: "separates reasoning from the content, and omits it on request, also in a stream",
    fields: ["include_reasoning"],
    needs: parrot("a reasoning parser, and a model whose words a test chooses"),
    run: async (target) => {
      const body = { messages: [{ role: "user", content: "say:let me see</think>four" }] };
      for (const [include_reasoning, reasoning] of [
        [true, "let me see"],
        [false, null],
      ] as const) {
        expect((await target.choice({ ...body, include_reasoning })).message).toMatchObject({ content: "four", reasoning });
        const { chunks } = await target.stream({ ...body, include_reasoning });
        const deltas = chunks.flatMap((chunk) => chunk.choices.map((choice: any) => choice.delta));
        expect(deltas.map((delta) => delta.content ?? "").join("")).toBe("four");
        expect(deltas.map((delta) => delta.reasoning ?? "").join("")).toBe(reasoning ?? "");
      }
    },
  },
  {
    number: 114,
    title: "auto: calls in the text become tool calls, text that does not parse is content; none keeps the text",
    fields: ["tools", "tool_choice"],
    needs: parrot(),
    run: async (target) => {
      const { message, finish_reason } = await target.choice({ ...says(`so: ${CALL}`), tools: [ADD] });
      expect(message).toMatchObject({ content: "so: ", tool_calls: [{ function: { name: "add", arguments: '{"a": 1}' } }] });
      expect(finish_reason).toBe("tool_calls");
      expect((await target.choice({ ...says(CALL), tools: [ADD], tool_choice: "auto" })).message.content).toBeNull();
      expect(await target.choice({ ...says(CALL), tools: [ADD], tool_choice: "none" })).toMatchObject({
        message: { content: CALL, tool_calls: [] },
        finish_reason: "stop",
      });
      expect(await target.text({ ...says("<tool_call>oops"), tools: [ADD] })).toBe("<tool_call>oops");
    },
  },
];

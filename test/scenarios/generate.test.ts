import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import type { ChatCompletionRequest, Tool } from "../../src/base/schema/index.ts";
import { generateScenarios, TooFewScenariosError, type GenerateScenariosOptions } from "../../src/library/scenarios/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { defineTool } from "../../src/library/rollout/agent/index.ts";
import { z } from "zod";

const tools: Tool[] = [
  defineTool({ name: "find", description: "Finds a book.", schema: z.object({ title: z.string() }), run: () => "" }),
  defineTool({ name: "lend", schema: z.object({ title: z.string() }), run: () => "" }),
];
const task = (text: string, parts: object = {}) => ({ task: text, difficulty: 2, tools: ["find"], ...parts });
const answer = (...scenarios: readonly unknown[]) => JSON.stringify({ scenarios });

/** Runs with an endpoint that gives the texts in order. */
async function generated(texts: readonly string[], options: Partial<GenerateScenariosOptions> & { readonly count: number }) {
  const model = createScriptedPolicy(texts.map((text) => ({ text })));
  const result = await generateScenarios({ tools, model, ...options });
  return { ...result, sent: model.requests, tasks: result.scenarios.map((each) => each.task) };
}

const promptOf = ({ messages }: ChatCompletionRequest, at = -1) => messages.at(at)?.content as string;

describe("generateScenarios", () => {
  it("asks for a batch with the tools, and returns checked scenarios with ids", async () => {
    const { scenarios, rejected, requests, sent } = await generated(
      [answer(task("Find Dune. "), task("Lend Emma.", { difficulty: 5, tools: ["lend", "find", "lend"] }))],
      { count: 2, instructions: "The library has novels only.", resources: [{ uri: "book://7", name: "Dune" }] },
    );
    expect(scenarios).toEqual([
      { id: expect.stringMatching(/^[0-9a-f]{16}$/u) as string, task: "Find Dune.", difficulty: 2, tools: ["find"] },
      { id: expect.stringMatching(/^[0-9a-f]{16}$/u) as string, task: "Lend Emma.", difficulty: 5, tools: ["lend", "find"] },
    ]);
    expect({ rejected, requests }).toEqual({ rejected: [], requests: 1 });
    expect(sent[0]).toMatchObject({ model: "local/demo/scripted:step0", response_format: { type: "json_schema" } });
    expect(sent[0]).not.toHaveProperty("seed");
    for (const text of ["Finds a book.", '"title"', "book://7", "novels only", "exactly 2"]) expect(promptOf(sent[0]!)).toContain(text);
  });

  it("restricts the answer by a strict JSON schema to the number, the tool names and the difficulty range", async () => {
    const { sent } = await generated([answer(task("a"), task("b"))], { count: 2, difficulty: { min: 2, max: 3 } });
    expect(sent[0]?.response_format).toEqual({
      type: "json_schema",
      json_schema: {
        name: "scenarios",
        strict: true,
        schema: {
          type: "object",
          properties: {
            scenarios: {
              type: "array",
              minItems: 2,
              maxItems: 2,
              items: {
                type: "object",
                properties: {
                  task: { type: "string" },
                  difficulty: { type: "integer", minimum: 2, maximum: 3 },
                  tools: { type: "array", items: { type: "string", enum: ["find", "lend"] } },
                },
                required: ["task", "difficulty", "tools"],
                additionalProperties: false,
              },
            },
          },
          required: ["scenarios"],
          additionalProperties: false,
        },
      },
    });
  });

  it("asks in batches and names earlier tasks in the next batch", async () => {
    const { tasks, sent } = await generated([answer(task("a"), task("b")), answer(task("c"), task("d")), answer(task("e"))], {
      count: 5,
      batchSize: 2,
    });
    expect(tasks).toEqual(["a", "b", "c", "d", "e"]);
    expect(promptOf(sent[0]!)).not.toContain("exist already");
    expect(promptOf(sent[2]!)).toMatch(/exist already; write other ones:\n"a"\n"b"\n"c"\n"d"\n\n.*exactly 1 entry/su);
    expect(sent.map(({ messages }) => messages.length)).toEqual([2, 2, 2]);
  });

  it("extends existing scenarios: names them to the model, rejects their tasks, and does not return them", async () => {
    const { tasks, rejected, sent } = await generated([answer(task("OLD"), task("new")), answer(task("newer"))], {
      count: 2,
      existing: [{ task: "old." }],
    });
    expect(tasks).toEqual(["new", "newer"]);
    expect(rejected.map(({ reason }) => reason)).toEqual(["duplicate"]);
    expect(promptOf(sent[0]!)).toContain('exist already; write other ones:\n"old."');
  });

  it("sends consecutive seeds and further fields, which replace the generated ones except model and messages", async () => {
    const { sent } = await generated([answer(task("a")), answer(task("b"))], {
      count: 2,
      batchSize: 1,
      seed: 7,
      request: { temperature: 0.5, response_format: { type: "json_object" }, model: "other", messages: [] },
    });
    expect(sent.map(({ seed }) => seed)).toEqual([7, 8]);
    expect(sent[0]).toMatchObject({ temperature: 0.5, response_format: { type: "json_object" }, model: "local/demo/scripted:step0" });
    expect(sent[0]?.messages).toHaveLength(2);
  });

  it("keeps valid scenarios, and retries once with the answer, its problems and the number of missing scenarios", async () => {
    const first = answer(task("a"), task("A."), task("c", { tools: ["burn"] }));
    const { tasks, rejected, requests, sent } = await generated([first, answer(task("d"), task("e"))], { count: 3 });
    expect(tasks).toEqual(["a", "d", "e"]);
    expect(rejected).toEqual([
      { request: 1, reason: "duplicate", message: '`scenarios[1].task`: expected a new task, got "A." again' },
      { request: 1, reason: "tool", message: '`scenarios[2].tools`: expected names of the agent\'s tools, got "burn"' },
    ]);
    expect(requests).toBe(2);
    expect(sent[1]?.messages).toHaveLength(4);
    expect(sent[1]?.messages[2]).toEqual({ role: "assistant", content: first });
    const correction = promptOf(sent[1]!);
    for (const text of ['got "A." again', 'got "burn"', "other 1 scenarios", "exactly 2 new entries"]) expect(correction).toContain(text);
    expect(sent[1]?.response_format).toMatchObject({ json_schema: { schema: { properties: { scenarios: { minItems: 2 } } } } });
  });

  it("begins a new batch after a failed retry", async () => {
    const { tasks, rejected, sent } = await generated(["Sure! Here are some tasks.", "[]", answer(task("a"))], { count: 1 });
    expect(tasks).toEqual(["a"]);
    expect(rejected.map(({ request, reason }) => [request, reason])).toEqual([
      [1, "answer"],
      [2, "answer"],
    ]);
    expect(sent.map(({ messages }) => messages.length)).toEqual([2, 4, 2]);
  });

  it.each<[string, string, unknown[]]>([
    ["a value that is not an object", "format", ["text"]],
    ["a task that is not a string", "format", [{ difficulty: 1, tools: [] }]],
    ["a difficulty that is not an integer", "format", [task("a", { difficulty: 1.5 })]],
    ["a difficulty as text", "format", [task("a", { difficulty: "1" })]],
    ["tools that are not names", "format", [task("a", { tools: "find" })]],
    ["a difficulty out of range", "difficulty", [task("a", { difficulty: 6 })]],
    ["a difficulty below the range", "difficulty", [task("a", { difficulty: 0 })]],
    ["an unknown tool", "tool", [task("a", { tools: ["find", "toString"] })]],
    ["an empty task", "empty", [task(" \n . ")]],
  ])("rejects %s with the reason `%s`", async (_, reason, scenarios) => {
    const { rejected, tasks } = await generated([answer(...scenarios), answer(task("good"))], { count: 1 });
    expect(rejected.map((each) => each.reason)).toEqual([reason]);
    expect(tasks).toEqual(["good"]);
  });

  it("rejects the number of scenarios, retries for missing ones, and does not return more than requested", async () => {
    const { tasks, rejected } = await generated([answer(task("a")), answer(task("b"), task("c"))], { count: 2 });
    expect(tasks).toEqual(["a", "b"]);
    expect(rejected.map(({ request, reason, message }) => [request, reason, message])).toEqual([
      [1, "count", "expected 2 entries in `scenarios`, got 1"],
      [2, "count", "expected 1 entries in `scenarios`, got 2"],
      [2, "surplus", "`scenarios[1]` was not requested"],
    ]);
  });

  it("reads an answer in a fenced block, and accepts scenarios without tools", async () => {
    const { scenarios } = await generated([`\`\`\`json\n${answer({ task: "a", difficulty: 1 })}\n\`\`\`\n`], { count: 1 });
    expect(scenarios[0]).toMatchObject({ task: "a", tools: [] });
  });

  it("names a token limit as the cause of an answer that was cut", async () => {
    const model = createScriptedPolicy([{ text: '{"scenarios": [', isTruncated: true }]);
    const { rejected } = await generateScenarios({ tools, model, count: 1, maxRequests: 1, allowFewer: true });
    expect(rejected[0]?.message).toContain("cut at its token limit");
  });

  it("keeps tasks that differ only in operators or digits, and gives equal ids to tasks that differ only in case and space", async () => {
    const { tasks, scenarios } = await generated([answer(task("Add 3 + 4"), task("Add 3 * 4"), task("Add 3 + 5"))], { count: 3 });
    expect(tasks).toHaveLength(3);
    const again = await generated([answer(task("  add  3 +\t4!"))], { count: 1 });
    expect(again.scenarios[0]?.id).toBe(scenarios[0]?.id);
  });

  it("throws after the budget of requests, with the valid scenarios, the reasons and the remedy", async () => {
    const same = () => answer(task("a"), task("a"));
    const running = generated([same(), same(), same()], { count: 4, batchSize: 2, maxRequests: 3 });
    await expect(running).rejects.toBeInstanceOf(TooFewScenariosError);
    await expect(running).rejects.toMatchObject({
      code: "E_DATA",
      param: "maxRequests",
      message: expect.stringMatching(
        /^Expected 4 scenarios, got 1 after 3 requests; rejected: 5 duplicate, 1 count .*`allowFewer`/u,
      ) as string,
      result: { scenarios: [{ task: "a" }], requests: 3 },
    });
  });

  it("returns fewer scenarios with `allowFewer`, and sends at most two requests per batch and two more by default", async () => {
    const { scenarios, requests, rejected } = await generated(
      Array.from({ length: 6 }, () => "no"),
      {
        count: 20,
        allowFewer: true,
      },
    );
    expect({ scenarios, requests }).toEqual({ scenarios: [], requests: 6 });
    expect(rejected).toHaveLength(6);
  });

  it("rejects with the signal's reason and with an error of the model unchanged", async () => {
    const reason = new Error("enough");
    const controller = new AbortController();
    const aborting = createScriptedPolicy(() => {
      controller.abort(reason);
      return { text: "no" };
    });
    await expect(generateScenarios({ tools, model: aborting, count: 1, signal: controller.signal })).rejects.toBe(reason);
    expect(aborting.requests).toHaveLength(1);
    await expect(generateScenarios({ tools, model: aborting, count: 1, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(aborting.requests).toHaveLength(1);
    const failing = { id: "m", complete: () => Promise.reject(reason) };
    await expect(generateScenarios({ tools, model: failing, count: 1 })).rejects.toBe(reason);
  });

  it.each<[string, Partial<GenerateScenariosOptions>]>([
    ["count", { count: 0 }],
    ["count", { count: Number.NaN }],
    ["batchSize", { batchSize: 0 }],
    ["maxRequests", { maxRequests: 1.5 }],
    ["seed", { seed: 0.5 }],
    ["difficulty", { difficulty: { min: 0, max: 3 } }],
    ["difficulty", { difficulty: { min: 4, max: 3 } }],
    ["tools", { tools: [] }],
    ["tools", { tools: [tools[0]!, tools[0]!] }],
    ["client", { tools: undefined }],
    ["tools", { client: { listTools: async () => ({ tools: [] }) } }],
  ])("rejects an invalid `%s` before any request", async (param, options) => {
    const model = createScriptedPolicy([]);
    await expect(generateScenarios({ tools, model, count: 1, ...options })).rejects.toMatchObject({ code: "E_ARGUMENT", param });
    expect(model.requests).toEqual([]);
  });
});

/** Scenarios as a model may write them, valid or not. */
const anyScenario = fc.oneof(
  fc.record({
    task: fc.oneof(fc.constantFrom("a", "A", "b", "c", "d", " ", "e"), fc.string()),
    difficulty: fc.oneof(fc.integer({ min: 0, max: 6 }), fc.double()),
    tools: fc.array(fc.constantFrom("find", "lend", "burn"), { maxLength: 2 }),
  }),
  fc.jsonValue(),
);
const anyAnswer = fc.oneof(
  { weight: 4, arbitrary: fc.array(anyScenario, { maxLength: 8 }).map((scenarios) => JSON.stringify({ scenarios })) },
  fc.jsonValue().map((value) => JSON.stringify(value)),
  fc.string(),
);

test.prop([fc.array(anyAnswer, { minLength: 1, maxLength: 6 }), fc.integer({ min: 1, max: 12 }), fc.integer({ min: 1, max: 5 })], {
  numRuns: 200,
})(
  "any answers result in valid, different scenarios within the budget, and every shortage has a reason",
  async (texts, count, batchSize) => {
    const { scenarios, rejected, requests } = await generated(texts, { count, batchSize, maxRequests: texts.length, allowFewer: true });
    expect(scenarios.length).toBeLessThanOrEqual(count);
    expect(requests).toBeLessThanOrEqual(texts.length);
    expect(new Set(scenarios.map(({ id }) => id)).size).toBe(scenarios.length);
    for (const { task: text, difficulty, tools: names } of scenarios) {
      expect(text.trim()).not.toBe("");
      expect([1, 2, 3, 4, 5]).toContain(difficulty);
      for (const name of names) expect(["find", "lend"]).toContain(name);
    }
    if (scenarios.length < count) expect(requests).toBe(texts.length);
    for (const { reason, message, request } of rejected) {
      expect(message.length).toBeGreaterThan(0);
      expect(reason).toMatch(/^(?:answer|count|surplus|format|difficulty|tool|empty|duplicate)$/u);
      expect(request).toBeLessThanOrEqual(requests);
    }
  },
);

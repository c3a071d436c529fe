import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { connect, gatherTrajectoryGroups, trajectory } from "../../src/index.ts";
import { defineTool, runAgent } from "../../src/library/rollout/agent/index.ts";
import { startTestService, type TestServiceOptions } from "../../src/testing/index.ts";

async function open(options: TestServiceOptions) {
  const test = await startTestService(options);
  onTestFinished(() => test.close({ graceMs: 0 }));
  const service = await connect({ baseUrl: test.url, apiKey: test.apiKey });
  onTestFinished(() => service.close());
  const model = await service.models.create({ project: "demo", name: "m", baseModel: "whetstone-tiny" });
  return { test, service, model };
}

describe("startTestService", () => {
  it("answers the texts of a script, tool calls included, and records calls and requests", async () => {
    const { test, model } = await open({
      answer: ({ prompt }) =>
        prompt.includes("<|tool|>3") ? "It is 3." : '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>',
    });
    const schema = z.object({ a: z.number(), b: z.number() });
    const add = defineTool({ name: "add", description: "Adds.", schema, run: ({ a, b }) => a + b });
    const t = trajectory({ messages: [{ role: "user", content: "1 + 2?" }], tools: [add] });
    expect(await runAgent(t, await model.policy())).toMatchObject({ stopReason: "answer", text: "It is 3.", toolCalls: 1, toolErrors: 0 });
    expect(test.engine.calls.filter(({ verb }) => verb === "sample")).toHaveLength(2);
    expect(test.requests.filter(({ status }) => status === 200).length).toBeGreaterThanOrEqual(3);
  });

  it("trains: an answer can depend on the step of the sampled weights", async () => {
    const { model } = await open({ answer: ({ step }) => `after ${step} steps` });
    const sample = async () => {
      const t = trajectory({ messages: [{ role: "user", content: "?" }] });
      await t.sample(await model.policy());
      return t;
    };
    let reward = 0;
    const groups = await gatherTrajectoryGroups([0], async () => (await sample()).finish({ reward: reward++ }), { groupSize: 2 });
    await (await model.train(groups)).done();
    expect((await sample()).lastText).toBe("after 1 steps");
  });

  it("removes its temporary data directory, and keeps a given one", async () => {
    const dataDir = await mkdtemp(join(tmpdir(), "whetstone-given-"));
    onTestFinished(() => rm(dataDir, { recursive: true }));
    for (const [given, isKept] of [
      [undefined, false],
      [dataDir, true],
    ] as const) {
      const test = await startTestService({ dataDir: given });
      expect(existsSync(test.dataDir)).toBe(true);
      await test[Symbol.asyncDispose]();
      expect(existsSync(test.dataDir)).toBe(isKept);
    }
  });

  it("rejects two scripts", async () => {
    await expect(startTestService({ answer: () => "", engine: { script: () => [] } })).rejects.toMatchObject({ code: "E_CONFIG" });
  });
});

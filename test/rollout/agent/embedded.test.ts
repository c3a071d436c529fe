import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { z } from "zod";
import { defineTool, runAgent } from "../../../src/library/rollout/agent/index.ts";
import { connect, trajectory, type Policy, type Service } from "../../../src/index.ts";
import { preflight, TrajectoryGroup } from "../../../src/base/trajectory/index.ts";

let service: Service;
let policy: Policy;
let dataDir: string;

beforeAll(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "whetstone-agent-"));
  service = await connect({ dataDir });
  const model = await service.models.create({ project: "test", name: "agent", baseModel: "whetstone-tiny" });
  policy = await model.policy(0);
});

afterAll(async () => {
  await service?.close();
  await rm(dataDir, { recursive: true, force: true });
});

it("runs the tool call of the shipped model; the next prompt continues its tokens exactly", async () => {
  const inputs: string[] = [];
  const find = defineTool({
    name: "find",
    schema: z.object({ name: z.string() }),
    run: ({ name }) => {
      inputs.push(name);
      return 7;
    },
  });
  const rollout = async (temperature: number) => {
    const t = trajectory({ messages: [{ role: "user", content: "Use find with name kat" }], tools: [find] });
    const run = await runAgent(t, policy, { maxTurns: 4, maxCompletionTokens: 48, temperature, seed: 1 });
    return { run, finished: t.finish({ reward: run.text === "7" ? 1 : 0 }) };
  };
  const { run, finished } = await rollout(0);
  expect(run).toMatchObject({ stopReason: "answer", text: "7", turns: 2, toolCalls: 1, toolErrors: 0 });
  expect(inputs).toEqual(["kat"]);
  const [first, second] = finished.choices;
  const sent = [...first!.prompt_token_ids!, ...first!.token_ids!];
  expect(second!.prompt_token_ids!.slice(0, sent.length)).toEqual(sent);
  expect(second!.prompt_token_ids!.length).toBeGreaterThan(sent.length);

  const sampled = (await rollout(1)).finished;
  const group = new TrajectoryGroup({ trajectories: [sampled.with({ reward: 1 }), sampled.with({ reward: 0, metadata: { copy: 1 } })] });
  expect(preflight([group]).filter(({ severity }) => severity === "fatal")).toEqual([]);
});

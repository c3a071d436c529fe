/** The whole service on a Tinker server: models, jobs, checkpoints and completions, with the shipped base. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createOnnxEngine, createTinkerEngine, type Engine } from "../../src/engine/index.ts";
import { startService, type RunningService } from "../../src/service/index.ts";
import { shippedDirectory } from "../../src/service/models/shipped-base.ts";
import { startTinkerServer, type TinkerServer } from "../support/tinker-server.ts";
import { choice, group, temporaryDirectory } from "./support.ts";

const baseModels = { "whetstone-tiny": shippedDirectory() };
const messages = [{ role: "user", content: "Reverse the text: abc" }];
let behind: Engine;
const servers: Partial<Record<"sum" | "sequence-mean", TinkerServer>> = {};

beforeAll(async () => {
  behind = await createOnnxEngine({ baseModels });
  for (const reduction of ["sum", "sequence-mean"] as const)
    servers[reduction] = await startTinkerServer({ engine: behind, base: "whetstone-tiny", baseName: "/models/whetstone-tiny", reduction });
});
afterAll(async () => {
  for (const server of Object.values(servers)) await server.close();
  await behind.close();
});

async function start(
  reduction: "sum" | "sequence-mean",
  dataDir: string,
): Promise<{ service: RunningService; call: (method: string, path: string, body?: object) => Promise<{ status: number; body: any }> }> {
  const engine = await createTinkerEngine({ url: servers[reduction]!.url, baseModels, patienceMs: 5_000 });
  const service = await startService({ engine, dataDir, logger: { info: () => {}, warn: () => {}, error: () => {} } });
  onTestFinished(() => service.close({ graceMs: 0 }));
  return {
    service,
    async call(method, path, body) {
      const response = await fetch(service.url + path, {
        method,
        headers: { authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      return { status: response.status, body: JSON.parse(await response.text()) as unknown };
    },
  };
}

describe.each(["sum", "sequence-mean"] as const)("losses by %s", (reduction) => {
  it("trains an adapter by RL, samples each step, and loads it after a restart", async () => {
    const dataDir = await temporaryDirectory();
    const first = await start(reduction, dataDir);
    const wanted = { project: "demo", name: "reverse", base_model: "whetstone-tiny" };
    expect(await first.call("POST", "/v1/preview/models", wanted)).toMatchObject({ status: 422, body: { error: { param: "lora" } } });
    const { body: model } = await first.call("POST", "/v1/preview/models", { ...wanted, lora: { rank: 4 } });

    const greedy = (step: number, call = first.call) =>
      call("POST", "/v1/chat/completions", {
        model: `local/demo/reverse:step${step}`,
        messages,
        temperature: 0,
        max_tokens: 6,
        logprobs: true,
        return_token_ids: true,
      });
    const sampled = async (step: number, call = first.call) => {
      const { status, body } = await greedy(step, call);
      expect([status, body.model]).toEqual([200, `local/demo/reverse:step${step}`]);
      const [found] = body.choices;
      return {
        ids: found.token_ids as number[],
        prompt: body.prompt_token_ids as number[],
        logprobs: found.logprobs.content.map(({ logprob }: { logprob: number }) => logprob) as number[],
      };
    };
    const before = await sampled(0);
    const better = choice(before.prompt, [...before.ids].reverse());
    const groups = [group({ reward: 1, choices: [better] }, { reward: 0, choices: [choice(before.prompt, before.ids)] })];
    const train = (config: object) =>
      first.call("POST", "/v1/preview/training-jobs", { model_id: model.id, trajectory_groups: groups, experimental_config: config });
    const ended = async ({ body: { id } }: { body: { id: string } }) => {
      for (let after = ""; ;) {
        const { body } = await first.call("GET", `/v1/preview/training-jobs/${id}/events?limit=100&wait=10${after}`);
        const last = body.data.at(-1);
        if (["training_ended", "training_failed"].includes(last?.type)) return body.data as { type: string; data: any }[];
        if (last !== undefined && body.data.length === 100) after = `&after=${last.id}`;
      }
    };
    const clipped = await train({ learning_rate: 0.01, max_grad_norm: 1, allow_training_without_logprobs: true });
    if (reduction === "sum") expect(await ended(clipped)).toContainEqual(expect.objectContaining({ type: "training_ended" }));
    else expect(clipped).toMatchObject({ status: 422, body: { error: { param: "experimental_config.max_grad_norm" } } });
    const events = await ended(await train({ learning_rate: 0.01, allow_training_without_logprobs: true }));
    const step = events.find(({ type }) => type === "gradient_step")!.data;
    expect(step.grad_norm).toBeGreaterThan(0);
    expect(step).not.toHaveProperty("entropy");
    const last = reduction === "sum" ? 2 : 1;
    const after = await sampled(last);
    expect(after.logprobs[0]).not.toBe(before.logprobs[0]);
    expect(await sampled(0)).toEqual(before);
    const state = JSON.parse(await readFile(join(dataDir, "checkpoints", model.id, String(last), "tinker.json"), "utf8")) as object;
    expect(state).toMatchObject({ base: "whetstone-tiny", rank: 4, alpha: 32, step: last });

    await first.service.close({ graceMs: 0 });
    const second = await start(reduction, dataDir);
    expect(await sampled(last, second.call)).toEqual(after);
    const refused = await second.call("POST", "/v1/chat/completions", { messages, frequency_penalty: 1 });
    expect(refused).toMatchObject({ status: 400, body: { error: { param: "frequency_penalty" } } });
  });
});

/** The service with base models in 4 and 8 bits: RL and SFT jobs of adapters, and jobs of all parameters. */
import { expect, onTestFinished, test } from "vitest";
import { startService } from "../../src/service/index.ts";
import { BASE, finishedEvents, MODELS, RL_JOBS, rollOut, send, SFT_JOBS, temporaryDirectory, uploadExamples } from "./support.ts";

test.each(["int4", "int8"] as const)(
  "with %s weights, rollouts of an adapter agree with its RL jobs, and a model with all parameters trained is sampled, too",
  async (weightPrecision) => {
    const service = await startService({ dataDir: await temporaryDirectory(), weightPrecision });
    onTestFinished(() => service.close({ graceMs: 0 }));
    const { devices } = (await (await fetch(`${service.url}/health`)).json()) as { devices: unknown };
    expect(devices).toEqual([{ name: "cpu", adapter: null, weight_precision: weightPrecision, rollout_precision: "float32" }]);

    const { id: adapter } = await send(service, "POST", MODELS, { project: "demo", name: "adapter", base_model: BASE, lora: { rank: 4 } });
    const examples = { training_data_url: await uploadExamples(service, 4), config: { batch_size: 2, learning_rate: 1e-2 } };
    await finishedEvents(service, (await send(service, "POST", SFT_JOBS, { model_id: adapter, ...examples })).id);
    const groups = await Promise.all(["one", "two"].map((word) => rollOut(service, `Say ${word}.`, { model: adapter })));
    const job = await send(service, "POST", RL_JOBS, { model_id: adapter, trajectory_groups: groups });
    const step = (await finishedEvents(service, job.id)).find(({ type }) => type === "gradient_step")!.data as Record<string, number>;
    expect(step["sampler/mismatch_kl"]).toBeLessThan(1e-8);
    expect(step["policy/ratio_p99"]).toBeCloseTo(1, 3);

    const { id: whole } = await send(service, "POST", MODELS, { project: "demo", name: "whole", base_model: BASE });
    await finishedEvents(service, (await send(service, "POST", SFT_JOBS, { model_id: whole, ...examples })).id);
    for (const model of [BASE, whole]) await rollOut(service, "Say three.", { model, n: 2 });
  },
  120_000,
);

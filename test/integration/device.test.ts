/** The service with the embedded engine on a device: health, metrics of gradient steps, fallbacks. */
import { cp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { startService, type ServiceOptions } from "../../src/service/index.ts";
import { shippedDirectory } from "../../src/service/models/shipped-base.ts";
import { writeRandomWeights } from "../bench/random-weights.ts";
import { missingAdapter } from "../support/adapter.ts";
import { type Address, BASE, finishedEvents, MODELS, send, SFT_JOBS, temporaryDirectory, uploadExamples } from "./support.ts";

async function start(options: ServiceOptions): Promise<Address> {
  const service = await startService({ dataDir: await temporaryDirectory(), ...options });
  onTestFinished(() => service.close({ graceMs: 0 }));
  return service;
}

const devices = async ({ url }: Address) => ((await (await fetch(`${url}/health`)).json()) as { devices: unknown }).devices;

test.each(["float32", "int8"] as const)("reports the processor in /health, with rollouts in %s", async (rolloutPrecision) => {
  expect(await devices(await start({ device: "cpu", rolloutPrecision }))).toEqual([
    { name: "cpu", adapter: null, weight_precision: "float32", rollout_precision: rolloutPrecision },
  ]);
});

/** Writes a model of 17 M random weights with the tokenizer of the shipped model. */
async function writeLargeBase(): Promise<string> {
  const directory = await temporaryDirectory();
  await cp(shippedDirectory(), directory, { recursive: true });
  await rm(join(directory, "model.safetensors"));
  const path = join(directory, "config.json");
  const shape = { hidden_size: 512, intermediate_size: 2560, num_attention_heads: 16 };
  await writeFile(path, JSON.stringify({ ...(JSON.parse(await readFile(path, "utf8")) as object), ...shape }));
  await writeRandomWeights(directory);
  return directory;
}

test.each([
  ["float32", "No GPU can be used: models of more than 16 M weights run on the processor"],
  ["float16", "No GPU can be used: models of more than 16 M weights run on the processor, with float32 weights instead of float16"],
] as const)(
  "with `auto` and no driver, large models with %s weights run on the processor after one warning",
  async (weightPrecision, warning) => {
    vi.stubEnv("VK_DRIVER_FILES", "/nonexistent");
    vi.stubEnv("VK_ICD_FILENAMES", "/nonexistent");
    onTestFinished(() => void vi.unstubAllEnvs());
    const warnings: unknown[] = [];
    const logger = { info: () => {}, warn: (...line: unknown[]) => void warnings.push(line), error: console.error };
    const base = await writeLargeBase();
    const service = await start({ device: "auto", weightPrecision, baseModels: { large: base, other: base }, logger });
    const sample = (model: string) =>
      send(service, "POST", "/v1/chat/completions", { model, messages: [{ role: "user", content: "a" }], max_completion_tokens: 1 });
    await sample(BASE);
    expect(warnings).toEqual([]);
    await sample("large");
    await sample("other");
    expect(warnings).toEqual([
      [warning, { reason: expect.stringMatching(/^The device "webgpu" could not be opened: .*driver/u) as string }],
    ]);
    expect(await devices(service)).toEqual([{ name: "cpu", adapter: null, weight_precision: "float32", rollout_precision: "float32" }]);
  },
);

test.skipIf(missingAdapter !== null)(
  `trains on the device and reports its adapter and its bytes${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  async () => {
    const warnings: unknown[] = [];
    const logger = { info: () => {}, warn: (...line: unknown[]) => void warnings.push(line), error: console.error };
    const service = await start({ device: "webgpu", logger });
    expect(await devices(service)).toEqual([
      { name: "webgpu", adapter: expect.any(String) as string, weight_precision: "float32", rollout_precision: "float32" },
    ]);
    const { id } = await send(service, "POST", MODELS, { project: "demo", name: "device", base_model: BASE, lora: { rank: 4 } });
    const sft = { model_id: id, training_data_url: await uploadExamples(service, 4), config: { batch_size: 2 } };
    const events = await finishedEvents(service, (await send(service, "POST", SFT_JOBS, sft)).id);
    const steps = events.filter(({ type }) => type === "gradient_step").map(({ data }) => data as Record<string, number>);
    expect(steps).toHaveLength(2);
    for (const step of steps) {
      expect(Object.keys(step).filter((key) => key.startsWith("engine/"))).toEqual([
        "engine/device_bytes",
        "engine/uploaded_bytes",
        "engine/downloaded_bytes",
      ]);
      // The shipped model has 0.8 M weights of 4 bytes. A step transfers rows and log-probabilities, and no weights.
      expect(step["engine/device_bytes"]).toBeGreaterThan(3e6);
      expect(step["engine/uploaded_bytes"]).toBeLessThan(1e5);
      expect(step["engine/downloaded_bytes"]).toBeLessThan(step["engine/uploaded_bytes"]!);
    }
    expect(warnings).toEqual([]);
  },
  120_000,
);

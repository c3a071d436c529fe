/** The service with the embedded engine on a device: health, metrics of gradient steps, fallbacks. */
import { expect, onTestFinished, test } from "vitest";
import { startService, type ServiceOptions } from "../../src/service/index.ts";
import { missingAdapter } from "../support/adapter.ts";
import { type Address, BASE, finishedEvents, MODELS, send, SFT_JOBS, temporaryDirectory, uploadExamples } from "./support.ts";

async function start(options: ServiceOptions): Promise<Address> {
  const service = await startService({ dataDir: await temporaryDirectory(), ...options });
  onTestFinished(() => service.close({ graceMs: 0 }));
  return service;
}

const devices = async ({ url }: Address) => ((await (await fetch(`${url}/health`)).json()) as { devices: unknown }).devices;

test("reports the processor in /health by default", async () => {
  expect(await devices(await start({ device: "cpu" }))).toEqual([{ name: "cpu", adapter: null, weight_precision: "float32" }]);
});

test.skipIf(missingAdapter !== null)(
  `trains on the device and reports its adapter and its bytes${missingAdapter === null ? "" : `: ${missingAdapter}`}`,
  async () => {
    const warnings: unknown[] = [];
    const logger = { info: () => {}, warn: (...line: unknown[]) => void warnings.push(line), error: console.error };
    const service = await start({ device: "webgpu", logger });
    expect(await devices(service)).toEqual([{ name: "webgpu", adapter: expect.any(String) as string, weight_precision: "float32" }]);
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

import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { startService } from "../../../src/service/index.ts";
import { chooseDevice, fallbackWarning } from "../../../src/service/models/device.ts";
import { deviceMetrics } from "../../../src/service/jobs/metrics.ts";
import { createScriptedEngine } from "../../../src/testing/index.ts";
import { jobMetrics } from "../../../src/training/train/metrics.ts";
import { read } from "../../project/files.ts";
import { startTestService, temporaryDirectory, testBase } from "../support.ts";

function setVariable(value: string, name = "WHETSTONE_DEVICE"): void {
  vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
}

function clearVariables(): void {
  for (const name of ["WHETSTONE_DEVICE", "WHETSTONE_DEVICE_MEMORY", "WHETSTONE_WEIGHT_PRECISION", "WHETSTONE_ROLLOUT_PRECISION"])
    setVariable("", name);
}

/** Starts a service on a missing data directory; returns the error, and whether the directory was created. */
async function failedStart(options: Record<string, unknown>): Promise<{ code: unknown; message: unknown; isCreated: boolean }> {
  const dataDir = join(await temporaryDirectory(), "data");
  const { code, message } = (await startService({ dataDir, ...options }).then(
    async (service) => {
      await service.close();
      throw new Error("The service started");
    },
    (error: unknown) => error,
  )) as { code: unknown; message: unknown };
  return { code, message, isCreated: existsSync(dataDir) };
}

const rejected = (message: string) => ({ code: "E_CONFIG", message, isCreated: false });

test("the option takes precedence over WHETSTONE_DEVICE, which takes precedence over the processor", () => {
  clearVariables();
  expect(chooseDevice({})).toEqual({ device: "cpu", deviceMemory: undefined, weightPrecision: "float32", rolloutPrecision: "float32" });
  expect(chooseDevice({ device: "auto" }).device).toBe("auto");
  setVariable("webgpu");
  expect(chooseDevice({}).device).toBe("webgpu");
  expect(chooseDevice({ device: "cpu" }).device).toBe("cpu");
});

test("rejects an unknown device in the variable and in the option, names the accepted values, and creates no data directory", async () => {
  setVariable("cuda");
  const accepted = '"auto", "cpu", "webgpu"';
  expect(await failedStart({})).toEqual(rejected(`Expected \`WHETSTONE_DEVICE\` to be one of ${accepted}, got "cuda"`));
  expect(await failedStart({ device: "gpu" })).toEqual(rejected(`Expected \`device\` to be one of ${accepted}, got "gpu"`));
});

test("the memory of the device is the option, else WHETSTONE_DEVICE_MEMORY, which the processor ignores", () => {
  clearVariables();
  const memory = (options: Parameters<typeof chooseDevice>[0]) => chooseDevice(options).deviceMemory;
  expect(memory({ device: "webgpu" })).toBeUndefined();
  setVariable("24GB", "WHETSTONE_DEVICE_MEMORY");
  expect(memory({ device: "webgpu" })).toBe(24e9);
  expect(memory({ device: "auto" })).toBe(24e9);
  expect(memory({ device: "webgpu", deviceMemory: 16e9 })).toBe(16e9);
  expect(memory({ device: "cpu" })).toBeUndefined();
});

test("rejects a memory that is not a size, is below 1 GB or belongs to the processor, and names the option or variable", async () => {
  clearVariables();
  const bytes = "to be a whole number of bytes from 1000000000 (1 GB), got";
  expect(await failedStart({ device: "webgpu", deviceMemory: 24 })).toEqual(rejected(`Expected \`deviceMemory\` ${bytes} 24`));
  expect(await failedStart({ device: "webgpu", deviceMemory: NaN })).toEqual(rejected(`Expected \`deviceMemory\` ${bytes} NaN`));
  expect(await failedStart({ device: "webgpu", deviceMemory: "8GB" })).toEqual(rejected(`Expected \`deviceMemory\` ${bytes} "8GB"`));
  expect(await failedStart({ device: "cpu", deviceMemory: 24e9 })).toEqual(
    rejected('`deviceMemory` is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"'),
  );
  setVariable("large", "WHETSTONE_DEVICE_MEMORY");
  expect(await failedStart({ device: "webgpu" })).toEqual(
    rejected('Expected `WHETSTONE_DEVICE_MEMORY` to be a size such as 24GB, or a number of bytes, got "large"'),
  );
  setVariable("8", "WHETSTONE_DEVICE_MEMORY");
  expect(await failedStart({ device: "webgpu" })).toEqual(rejected(`Expected \`WHETSTONE_DEVICE_MEMORY\` ${bytes} 8`));
});

test("the precision of weights is the option, else WHETSTONE_WEIGHT_PRECISION, unless the device does not have it", () => {
  clearVariables();
  const precision = (options: Parameters<typeof chooseDevice>[0]) => chooseDevice(options).weightPrecision;
  expect(precision({ device: "webgpu" })).toBe("float32");
  setVariable("float16", "WHETSTONE_WEIGHT_PRECISION");
  expect(precision({ device: "webgpu" })).toBe("float16");
  expect(precision({ device: "auto" })).toBe("float16");
  expect(precision({ device: "webgpu", weightPrecision: "float32" })).toBe("float32");
  expect(precision({ device: "cpu" })).toBe("float32");
  setVariable("int4", "WHETSTONE_WEIGHT_PRECISION");
  expect(precision({})).toBe("int4");
  expect(precision({ device: "cpu", weightPrecision: "int8" })).toBe("int8");
  expect(precision({ device: "webgpu" })).toBe("float32");
  expect(precision({ device: "auto" })).toBe("float32");
});

test("rejects an unknown precision of weights, float16 with the processor, and int8 and int4 with other devices", async () => {
  clearVariables();
  const accepted = '"float32", "float16", "int8", "int4"';
  expect(await failedStart({ device: "cpu", weightPrecision: "int2" })).toEqual(
    rejected(`Expected \`weightPrecision\` to be one of ${accepted}, got "int2"`),
  );
  for (const [device, weightPrecision] of [
    ["webgpu", "int4"],
    ["auto", "int4"],
    ["webgpu", "int8"],
  ])
    expect(await failedStart({ device, weightPrecision })).toEqual(
      rejected(
        `\`weightPrecision\` "${weightPrecision}" is for the processor, got the device "${device}": omit it, or select the device "cpu"`,
      ),
    );
  expect(await failedStart({ device: "cpu", weightPrecision: "float16" })).toEqual(
    rejected('`weightPrecision` "float16" is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"'),
  );
  setVariable("half", "WHETSTONE_WEIGHT_PRECISION");
  expect(await failedStart({ device: "webgpu" })).toEqual(
    rejected(`Expected \`WHETSTONE_WEIGHT_PRECISION\` to be one of ${accepted}, got "half"`),
  );
});

test("rejects other invalid options of the embedded engine before the data directory is created", async () => {
  expect(await failedStart({ samplers: 0 })).toEqual(rejected("Expected `samplers` to be a whole number from 1, got 0"));
  expect(await failedStart({ trainerThreads: 5 })).toMatchObject({ code: "E_CONFIG", isCreated: false });
  expect(await failedStart({ baseModels: { base: "/nonexistent" } })).toMatchObject({ code: "E_CONFIG", isCreated: false });
});

test("the precision of rollouts is the option, else WHETSTONE_ROLLOUT_PRECISION, which other devices than the processor ignore", async () => {
  clearVariables();
  const precision = (options: Parameters<typeof chooseDevice>[0]) => chooseDevice(options).rolloutPrecision;
  expect(precision({})).toBe("float32");
  setVariable("int8", "WHETSTONE_ROLLOUT_PRECISION");
  expect(precision({})).toBe("int8");
  expect(precision({ device: "cpu", rolloutPrecision: "float32" })).toBe("float32");
  expect(precision({ device: "webgpu" })).toBe("float32");
  for (const device of ["webgpu", "auto"])
    expect(await failedStart({ device, rolloutPrecision: "int8" })).toEqual(
      rejected(`\`rolloutPrecision\` "int8" is for the processor, got the device "${device}": omit it, or select the device "cpu"`),
    );
  setVariable("int4", "WHETSTONE_ROLLOUT_PRECISION");
  expect(await failedStart({})).toEqual(rejected('Expected `WHETSTONE_ROLLOUT_PRECISION` to be one of "float32", "int8", got "int4"'));
});

test.each([
  ["baseModels", {}],
  ["allowedBaseRoots", []],
  ["hub", { isOffline: true }],
  ["samplers", 1],
  ["samplerThreads", 1],
  ["trainerThreads", 1],
  ["device", "webgpu"],
  ["deviceMemory", 5],
  ["weightPrecision", "float16"],
  ["rolloutPrecision", "int8"],
])("rejects `%s`, an option of the embedded engine, together with another engine", async (param, value) => {
  const message = `\`${param}\` is an option of the embedded engine, and \`engine\` selects another one: omit one of them, or configure the engine where it is created`;
  expect(await failedStart({ engine: createScriptedEngine(), [param]: value })).toEqual(rejected(message));
});

test("accepts `hub: null` together with another engine", async () => {
  const engine = createScriptedEngine({ bases: await testBase() });
  const service = await startService({ dataDir: await temporaryDirectory(), engine, hub: null });
  await service.close();
});

test("an engine that does not report its devices has none in /health", async () => {
  const { ok } = await startTestService();
  expect(await ok("GET", "/health")).toMatchObject({ devices: [] });
});

test("logs one warning per operator that the processor computes in place of the device", () => {
  const warnings: unknown[] = [];
  const warn = (_message: string, fields?: Readonly<Record<string, unknown>>) => void warnings.push(fields);
  const onFallback = fallbackWarning({ info: () => {}, warn, error: () => {} });
  onFallback({ program: "train-ppo", onDevice: 9, integers: 2, onProcessor: { LogSoftmax: 1, FusedMatMul: 40 } });
  onFallback({ program: "decode", onDevice: 5, integers: 1, onProcessor: { LogSoftmax: 2, Einsum: 3 } });
  expect(warnings).toEqual([
    { operator: "LogSoftmax", program: "train-ppo", nodes: 1 },
    { operator: "FusedMatMul", program: "train-ppo", nodes: 40 },
    { operator: "Einsum", program: "decode", nodes: 3 },
  ]);
});

test("converts an engine's use of a device to documented metrics, under time/ in a run's row", () => {
  const device = { name: "webgpu", adapter: "a GPU", bytes: 5, uploadedBytes: 3, downloadedBytes: 2 } as const;
  const metrics = deviceMetrics({ device });
  expect(metrics).toEqual({ "engine/device_bytes": 5, "engine/uploaded_bytes": 3, "engine/downloaded_bytes": 2 });
  const page = read("docs/reference/metrics.md");
  for (const key of Object.keys(metrics)) expect(page).toContain(`\`${key}\``);
  expect(Object.keys(jobMetrics(metrics))).toEqual(Object.keys(metrics).map((name) => `time/${name}`));
  expect(deviceMetrics({})).toEqual({});
});

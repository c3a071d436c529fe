import { expect, onTestFinished, test, vi } from "vitest";
import type { DeviceChoice } from "../../src/engine/index.ts";
import { startService } from "../../src/service/index.ts";
import { chooseDevice, chooseDeviceMemory, chooseWeightPrecision, warnOfFallbacks } from "../../src/service/device.ts";
import { deviceMetrics } from "../../src/service/jobs/metrics.ts";
import { jobMetrics } from "../../src/train/metrics.ts";
import { read } from "../project/files.ts";
import { startTestService, temporaryDirectory } from "./support.ts";

function setVariable(value: string, name = "WHETSTONE_DEVICE"): void {
  vi.stubEnv(name, value);
  onTestFinished(() => void vi.unstubAllEnvs());
}

test("the option takes precedence over WHETSTONE_DEVICE, which takes precedence over the processor", () => {
  setVariable("");
  expect(chooseDevice(undefined)).toBe("cpu");
  expect(chooseDevice("auto")).toBe("auto");
  setVariable("webgpu");
  expect(chooseDevice(undefined)).toBe("webgpu");
  expect(chooseDevice("cpu")).toBe("cpu");
});

test("rejects an unknown device in the variable and in the option, and names the accepted values", async () => {
  setVariable("cuda");
  const dataDir = await temporaryDirectory();
  const accepted = '"auto", "cpu", "webgpu"';
  await expect(startService({ dataDir })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: `Expected \`WHETSTONE_DEVICE\` to be one of ${accepted}, got "cuda"`,
  });
  await expect(startService({ dataDir, device: "gpu" as DeviceChoice })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: `Expected \`device\` to be one of ${accepted}, got "gpu"`,
  });
});

test("the memory of the device is the option, else WHETSTONE_DEVICE_MEMORY, which the processor ignores", () => {
  setVariable("", "WHETSTONE_DEVICE_MEMORY");
  expect(chooseDeviceMemory(undefined, "webgpu")).toBeUndefined();
  setVariable("24GB", "WHETSTONE_DEVICE_MEMORY");
  expect(chooseDeviceMemory(undefined, "webgpu")).toBe(24e9);
  expect(chooseDeviceMemory(undefined, "auto")).toBe(24e9);
  expect(chooseDeviceMemory(16e9, "webgpu")).toBe(16e9);
  expect(chooseDeviceMemory(undefined, "cpu")).toBeUndefined();
});

test("rejects a memory that is no size, is below 1 GB or belongs to the processor", async () => {
  const dataDir = await temporaryDirectory();
  await expect(startService({ dataDir, device: "webgpu", deviceMemory: 24 })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: "Expected `deviceMemory` to be a whole number of bytes from 1000000000 (1 GB), got 24",
  });
  await expect(startService({ dataDir, device: "cpu", deviceMemory: 24e9 })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: '`deviceMemory` is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"',
  });
  setVariable("large", "WHETSTONE_DEVICE_MEMORY");
  await expect(startService({ dataDir, device: "webgpu" })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: 'Expected `WHETSTONE_DEVICE_MEMORY` to be a size such as 24GB, or a number of bytes, got "large"',
  });
});

test("the precision of weights is the option, else WHETSTONE_WEIGHT_PRECISION, which the processor ignores", () => {
  setVariable("", "WHETSTONE_WEIGHT_PRECISION");
  expect(chooseWeightPrecision(undefined, "webgpu")).toBeUndefined();
  setVariable("float16", "WHETSTONE_WEIGHT_PRECISION");
  expect(chooseWeightPrecision(undefined, "webgpu")).toBe("float16");
  expect(chooseWeightPrecision(undefined, "auto")).toBe("float16");
  expect(chooseWeightPrecision("float32", "webgpu")).toBe("float32");
  expect(chooseWeightPrecision(undefined, "cpu")).toBeUndefined();
});

test("rejects an unknown precision of weights, and float16 with the processor", async () => {
  const dataDir = await temporaryDirectory();
  const accepted = '"float32", "float16"';
  await expect(startService({ dataDir, device: "webgpu", weightPrecision: "int8" as "float16" })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: `Expected \`weightPrecision\` to be one of ${accepted}, got "int8"`,
  });
  await expect(startService({ dataDir, device: "cpu", weightPrecision: "float16" })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: '`weightPrecision` "float16" is for a GPU, got the device "cpu": omit it, or select the device "webgpu" or "auto"',
  });
  setVariable("half", "WHETSTONE_WEIGHT_PRECISION");
  await expect(startService({ dataDir, device: "webgpu" })).rejects.toMatchObject({
    code: "E_CONFIG",
    message: `Expected \`WHETSTONE_WEIGHT_PRECISION\` to be one of ${accepted}, got "half"`,
  });
});

test("an engine that does not report its devices has none in /health", async () => {
  const { ok } = await startTestService();
  expect(await ok("GET", "/health")).toMatchObject({ devices: [] });
});

test("logs one warning per operator that the processor computes in place of the device", () => {
  const warnings: unknown[] = [];
  const warn = (_message: string, fields?: Readonly<Record<string, unknown>>) => void warnings.push(fields);
  const onFallback = warnOfFallbacks({ info: () => {}, warn, error: () => {} });
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

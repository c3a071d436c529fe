import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { checkNode } from "../../src/cli/doctor/installation.ts";
import { temporaryDirectory } from "../service/support.ts";
import { missingAdapter } from "../support/adapter.ts";
import { runHere } from "./run-here.ts";
import { useSharedService } from "./shared-service.ts";

const shared = useSharedService();

async function doctor(
  dataDir: string,
  ...args: string[]
): Promise<{ code: number; status: Record<string, string>; text: Record<string, string> }> {
  const { code, stdout } = await runHere("doctor", "--data-dir", dataDir, "--json", ...args);
  const { ok, checks } = JSON.parse(stdout) as {
    ok: boolean;
    checks: { name: string; status: string; message: string; remedy: string | null }[];
  };
  expect(ok).toBe(code === 0);
  for (const { status, remedy } of checks) expect(remedy === null).toBe(status === "pass");
  const by = (value: (check: (typeof checks)[number]) => string) => Object.fromEntries(checks.map((check) => [check.name, value(check)]));
  return { code, status: by(({ status }) => status), text: by(({ message, remedy }) => `${message}; ${remedy ?? ""}`) };
}

const PASSED = { node: "pass", engine: "pass", database: "pass", "data directory": "pass", "disk space": "pass" };

test("doctor passes for a running service with its key, by address or by data directory", async () => {
  const { dataDir } = shared.server;
  const passed = { ...PASSED, lock: "pass", service: "pass", key: "pass", version: "pass" };
  expect((await doctor(dataDir)).status).toEqual(passed);
  vi.stubEnv("WHETSTONE_BASE_URL", "");
  vi.stubEnv("WHETSTONE_API_KEY", "");
  const local = await doctor(dataDir);
  expect([local.status, local.text["lock"]]).toEqual([passed, expect.stringContaining(`used by the service at ${shared.server.url}`)]);
  expect((await runHere("doctor", "--data-dir", dataDir)).stdout).toMatch(/^pass {2}node: Node \d+\.\d+\.\d+$/mu);
  // The database that it opens to test SQLite is in memory alone.
  expect(existsSync(":memory:")).toBe(false);
});

test("doctor passes without a service, and warns of a stale service file", async () => {
  vi.stubEnv("WHETSTONE_BASE_URL", "");
  const dataDir = await temporaryDirectory();
  expect(await doctor(join(dataDir, "new"))).toMatchObject({ code: 0, status: { ...PASSED, service: "pass" } });
  await writeFile(join(dataDir, "service.json"), JSON.stringify({ pid: 1, url: "http://127.0.0.1:1", started_at: "" }));
  expect(await doctor(dataDir)).toMatchObject({ code: 0, status: { lock: "pass", service: "warn" } });
});

test("doctor fails for a wrong key, a service that does not answer, and a directory that cannot be created", async () => {
  vi.stubEnv("WHETSTONE_API_KEY", "wrong");
  const wrong = await doctor(shared.server.dataDir);
  expect([wrong.code, wrong.status["key"], wrong.text["key"]]).toEqual([1, "fail", expect.stringContaining("401")]);
  vi.stubEnv("WHETSTONE_BASE_URL", "http://127.0.0.1:1");
  const gone = await doctor(shared.server.dataDir);
  expect([gone.code, gone.status["service"], gone.text["service"]]).toEqual([1, "fail", expect.stringContaining("WHETSTONE_BASE_URL")]);
  const file = join(await temporaryDirectory(), "file");
  await writeFile(file, "");
  const blocked = await doctor(join(file, "data"));
  expect([blocked.code, blocked.status["data directory"]]).toEqual([1, "fail"]);
});

test.skipIf(missingAdapter !== null)("doctor names the GPU of the device; with auto, it warns of a software adapter", async () => {
  const { dataDir } = shared.server;
  vi.stubEnv("WHETSTONE_DEVICE", "webgpu");
  const found = await doctor(dataDir);
  expect([found.code, found.status["device"], found.text["device"]]).toEqual([
    0,
    "pass",
    expect.stringMatching(/^WebGPU computes on .+, with weights in float32; $/u),
  ]);
  const software = await doctor(dataDir, "--device", "auto");
  expect([software.code, software.status["device"], software.text["device"]]).toEqual([
    0,
    "warn",
    expect.stringMatching(
      /^models of more than 16 M weights run on the processor: .+ computes on the processor; Install the driver of the GPU/u,
    ),
  ]);
  expect((await doctor(dataDir, "--device", "cpu")).status["device"]).toBeUndefined();
});

test("doctor reports why no GPU can be used: a failure with webgpu, a warning with auto", async () => {
  const { dataDir } = shared.server;
  vi.stubEnv("VK_DRIVER_FILES", "/nonexistent");
  vi.stubEnv("VK_ICD_FILENAMES", "/nonexistent");
  const missing = await doctor(dataDir, "--device", "webgpu");
  expect([missing.code, missing.status["device"], missing.text["device"]]).toEqual([
    1,
    "fail",
    expect.stringMatching(/^The device "webgpu" could not be opened: .*driver of the GPU/u),
  ]);
  vi.stubEnv("WHETSTONE_DEVICE", "auto");
  const automatic = await doctor(dataDir);
  expect([automatic.code, automatic.status["device"], automatic.text["device"]]).toEqual([
    0,
    "warn",
    expect.stringContaining("run on the processor: The device"),
  ]);
  vi.stubEnv("WHETSTONE_DEVICE", "cuda");
  const unknown = await doctor(dataDir);
  expect([unknown.code, unknown.status["device"], unknown.text["device"]]).toEqual([1, "fail", expect.stringContaining('got "cuda"')]);
});

test.each([
  ["20.19.0", "pass"],
  ["24.1.0", "pass"],
  ["20.18.3", "fail"],
  ["18.20.0", "fail"],
])("doctor on Node %s: %s", (version, status) => expect(checkNode(">=20.19", version).status).toBe(status));

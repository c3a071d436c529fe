import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { runningService } from "../../src/library/client/embedded.ts";
import { connect } from "../../src/index.ts";

const close: (() => Promise<unknown>)[] = [];

beforeEach(() => {
  vi.stubEnv("WHETSTONE_BASE_URL", "");
  vi.stubEnv("WHETSTONE_API_KEY", "");
  vi.stubEnv("WHETSTONE_HOME", "");
});

afterEach(async () => {
  vi.unstubAllEnvs();
  for (const each of close.splice(0).reverse()) await each();
});

describe("connect to an address", () => {
  it.each(["http://127.0.0.1:9", "http://127.0.0.1:9/", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/"])(
    "accepts %s",
    async (baseUrl) => {
      const service = await connect({ baseUrl, apiKey: "key-key-key" });
      expect(service).toMatchObject({ baseUrl: "http://127.0.0.1:9", inferenceUrl: "http://127.0.0.1:9/v1" });
      await service.close();
      await service.close();
    },
  );

  it("reads address and key from the environment", async () => {
    vi.stubEnv("WHETSTONE_BASE_URL", "http://127.0.0.1:9/api");
    vi.stubEnv("WHETSTONE_API_KEY", "key-from-env\n");
    const service = await connect();
    expect(service).toMatchObject({ baseUrl: "http://127.0.0.1:9/api", apiKey: "key-from-env" });
    await service.close();
  });

  it.each([
    [{ baseUrl: "127.0.0.1:80", apiKey: "k" }, "baseUrl"],
    [{ baseUrl: "ftp://host", apiKey: "k" }, "baseUrl"],
    [{ baseUrl: "http://user:pass@host", apiKey: "k" }, "baseUrl"],
    [{ baseUrl: "http://host?x=1", apiKey: "k" }, "baseUrl"],
    [{ baseUrl: "http://host" }, "apiKey"],
    [{ baseUrl: "http://host", apiKey: "two words" }, "apiKey"],
    [{ baseUrl: "http://host", apiKey: "k", dataDir: "d" }, "dataDir"],
    [{ baseUrl: "http://host", apiKey: "k", connections: 0 }, "connections"],
    [{ baseUrl: "http://host", apiKey: "k", maxRetries: -1 }, "maxRetries"],
  ])("rejects %j", async (options, param) => {
    await expect(connect(options)).rejects.toMatchObject({ code: "E_CONFIG", param });
  });

  it("leaves the password out of the error for an invalid address", async () => {
    await expect(connect({ baseUrl: "ftp://user:hunter2@host", apiKey: "k" })).rejects.toMatchObject({
      message: expect.not.stringContaining("hunter2") as string,
    });
  });
});

describe("connect to the service of a data directory", () => {
  async function running(health: object = { status: "ok" }): Promise<{ url: string; seen: (string | undefined)[] }> {
    const seen: (string | undefined)[] = [];
    const server = createServer((request, response) => {
      seen.push(request.headers.authorization);
      response.end(request.url === "/health" ? JSON.stringify(health) : `{"object":"list","data":[]}`);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    close.push(() => new Promise((resolve) => server.close(resolve)));
    return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
  }

  async function directory(files: Record<string, string>): Promise<string> {
    const path = await mkdtemp(join(tmpdir(), "whetstone-connect-"));
    close.push(() => rm(path, { recursive: true }));
    for (const [name, text] of Object.entries(files)) await writeFile(join(path, name), text);
    return path;
  }

  it("connects to the running service and finds its key", async () => {
    const { url, seen } = await running();
    const dataDir = await directory({ "service.json": JSON.stringify({ pid: process.pid, url }), "api-key": "kept-key-123\n" });
    const service = await connect({ dataDir });
    expect(service).toMatchObject({ baseUrl: url, apiKey: "kept-key-123" });
    await service.models.list();
    // The health check has no key, because another process may use the port by now.
    expect(seen).toEqual([undefined, "Bearer kept-key-123"]);
    await service.close();
  });

  it("finds the directory through WHETSTONE_HOME", async () => {
    const { url } = await running();
    vi.stubEnv("WHETSTONE_HOME", await directory({ "service.json": JSON.stringify({ pid: 1, url }), "api-key": "kept-key-123" }));
    const service = await connect();
    expect(service.baseUrl).toBe(url);
    await service.close();
  });

  /** Connects to a service that reports devices, and returns the text on standard error. */
  async function printed(devices: readonly string[], times = 1): Promise<string> {
    const { url } = await running({ status: "ok", devices: devices.map((name) => ({ name, adapter: null, weight_precision: "float32" })) });
    const dataDir = await directory({ "service.json": JSON.stringify({ pid: 1, url }), "api-key": "kept-key-123" });
    let text = "";
    const spy = vi.spyOn(process.stderr, "write").mockImplementation((line) => {
      text += String(line);
      return true;
    });
    try {
      for (let i = 0; i < times; i++) await (await connect({ dataDir })).close();
    } finally {
      spy.mockRestore();
    }
    return text.replaceAll(url, "URL").replaceAll(dataDir, "DIRECTORY");
  }

  it("prints one line if the running service uses another device than WHETSTONE_DEVICE", async () => {
    vi.stubEnv("WHETSTONE_DEVICE", "webgpu");
    expect(await printed(["cpu"], 2)).toBe(
      "WHETSTONE_DEVICE=webgpu has no effect: the service at URL already runs on the data directory DIRECTORY, on the device cpu. Stop it to use another device\n",
    );
    expect(await printed(["cpu", "webgpu"])).toBe("");
    expect(await printed([])).toBe("");
    vi.stubEnv("WHETSTONE_DEVICE", "cpu");
    expect(await printed(["webgpu"])).toContain("WHETSTONE_DEVICE=cpu has no effect");
    vi.stubEnv("WHETSTONE_DEVICE", "auto");
    expect(await printed(["cpu"])).toBe("");
    vi.stubEnv("WHETSTONE_DEVICE", "");
    expect(await printed(["webgpu"])).toBe("");
  });

  it.each([
    ["WHETSTONE_DEVICE", "cuda"],
    ["WHETSTONE_DEVICE_MEMORY", "8"],
    ["WHETSTONE_WEIGHT_PRECISION", "half"],
  ])("rejects an invalid %s also if a service runs", async (name, value) => {
    vi.stubEnv("WHETSTONE_DEVICE", "webgpu");
    vi.stubEnv(name, value);
    await expect(printed(["webgpu"])).rejects.toMatchObject({ code: "E_CONFIG", param: name });
  });

  it("does not send its key to a program that answers without a health report", async () => {
    const { url } = await running(["not a report"]);
    const dataDir = await directory({ "service.json": JSON.stringify({ pid: 1, url }), "api-key": "kept-key-123" });
    expect(await runningService({ dataDir })).toBeNull();
  });

  it("reports a missing key of the running service", async () => {
    const { url } = await running();
    const dataDir = await directory({ "service.json": JSON.stringify({ pid: 1, url }) });
    await expect(connect({ dataDir })).rejects.toMatchObject({
      code: "E_CONFIG",
      param: "apiKey",
      message: expect.stringContaining("WHETSTONE_API_KEY") as string,
    });
  });
});

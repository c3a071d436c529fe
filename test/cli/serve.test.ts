import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { runHere } from "./run-here.ts";

const MAIN = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

test("rejects unknown commands and options with a suggestion, and prints help", async () => {
  const command = await runHere("sevre");
  expect([command.code, command.stderr]).toEqual([2, expect.stringContaining("Did you mean serve?")]);
  const option = await runHere("serve", "--prot", "1");
  expect([option.code, option.stderr]).toEqual([2, expect.stringContaining("Did you mean --port?")]);
  const value = await runHere("serve", "--port", "70000");
  expect([value.code, value.stderr]).toEqual([2, expect.stringContaining("0 to 65535")]);
  const size = await runHere("serve", "--checkpoint-budget", "20 apples");
  expect([size.code, size.stderr]).toEqual([2, expect.stringContaining("500MB or 20GB")]);
  const help = await runHere("--help");
  expect([help.code, help.stdout]).toEqual([0, expect.stringContaining("serve")]);
});

test("serve prints its address and the path of the key file, never the key, and stops on SIGTERM", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-cli-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const environment = { ...process.env, WHETSTONE_API_KEY: "" };
  const child = spawn(process.execPath, [MAIN, "serve", "--port", "0", "--data-dir", dataDir, "--log-requests"], {
    stdio: ["ignore", "pipe", "pipe"],
    env: environment,
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  const exited = once(child, "exit");
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const listening = (await lines.next()).value as string;
  const keyPlace = (await lines.next()).value as string;
  const url = /^Listening on (http:\/\/127\.0\.0\.1:\d+)$/.exec(listening)?.[1];
  const key = (await readFile(join(dataDir, "api-key"), "utf8")).trim();
  expect(keyPlace).toBe(`API key: ${join(dataDir, "api-key")}`);
  expect(listening + keyPlace).not.toContain(key);
  const response = await fetch(`${url}/v1/preview/base-models`, { headers: { authorization: `Bearer ${key}` } });
  expect(await response.json()).toEqual(["whetstone-tiny"]);
  let logged = "";
  child.stderr.on("data", (chunk: Buffer) => (logged += chunk.toString()));
  await fetch(`${url}/v1/x%0AGET%20/forged%20200%1B%5B2K/${key}`, { headers: { authorization: `Bearer ${key}` } });
  await vi.waitFor(() =>
    expect(logged.split("\n")).toContainEqual(
      expect.stringMatching(/^GET \/v1\/x%0AGET%20\/forged%20200%1B%5B2K\/\[key\] 404 [\d.]+ ms$/u),
    ),
  );
  const second = await runHere("serve", "--port", "0", "--data-dir", dataDir);
  expect([second.code, second.stderr]).toEqual([1, expect.stringContaining(`in use by the service at ${url}`)]);
  child.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
  expect(await readdir(dataDir)).not.toContain("service.json");
});

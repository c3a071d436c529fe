import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished, test } from "vitest";
import { smallModel } from "../gguf/support.ts";
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

test("serve prints its address and the path of the key file, never the key, serves files below --base-root, and stops on SIGTERM", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-cli-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const models = join(dataDir, "models");
  await mkdir(models);
  for (const directory of [models, dataDir]) await writeFile(join(directory, "small.gguf"), await smallModel());
  const environment = { ...process.env, WHETSTONE_API_KEY: "" };
  const child = spawn(process.execPath, [MAIN, "serve", "--port", "0", "--data-dir", dataDir, "--log-requests", "--base-root", models], {
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
  const dashboard = (await lines.next()).value as string;
  expect(dashboard).toBe(`Dashboard: ${url}/ui/, opened and logged in by \`whetstone ui --data-dir ${dataDir}\``);
  expect(listening + keyPlace + dashboard).not.toContain(key);
  const page = await fetch(`${url}/`, { headers: { accept: "text/html,application/xhtml+xml" } });
  expect([page.status, page.url]).toEqual([200, `${url}/ui/`]);
  expect((await fetch(`${url}/`)).status).toBe(401);
  const response = await fetch(`${url}/v1/preview/base-models`, { headers: { authorization: `Bearer ${key}` } });
  expect(await response.json()).toEqual(["whetstone-tiny"]);
  const addBase = (body: object) =>
    fetch(`${url}/v1/preview/base-models`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const added = await addBase({ source: join(models, "small.gguf"), id: "small" });
  expect([added.status, await added.json()]).toEqual([200, { id: "small" }]);
  const outside = await addBase({ source: join(dataDir, "small.gguf") });
  expect([outside.status, await outside.json()]).toEqual([404, expect.objectContaining({ error: expect.anything() })]);
  expect((await addBase({ source: "" })).status).toBe(422);
  const bases = await fetch(`${url}/v1/preview/base-models`, { headers: { authorization: `Bearer ${key}` } });
  expect(await bases.json()).toEqual(["whetstone-tiny", "small"]);
  let logged = "";
  child.stderr.on("data", (chunk: Buffer) => (logged += chunk.toString()));
  await fetch(`${url}/v1/x%0AGET%20/forged%20200%1B%5B2K/${key}`, { headers: { authorization: `Bearer ${key}` } });
  await expect
    .poll(() => logged.split("\n"))
    .toContainEqual(expect.stringMatching(/^GET \/v1\/x%0AGET%20\/forged%20200%1B%5B2K\/\[key\] 404 [\d.]+ ms [\da-f]{32}$/u));
  const second = await runHere("serve", "--port", "0", "--data-dir", dataDir);
  expect([second.code, second.stderr]).toEqual([1, expect.stringContaining(`in use by the service at ${url}`)]);
  child.kill("SIGTERM");
  expect(await exited).toEqual([0, null]);
  expect(await readdir(dataDir)).not.toContain("service.json");
});

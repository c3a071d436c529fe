import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { startTestService } from "../../src/testing/index.ts";
import { ROOT } from "../project/files.ts";
import { runHere } from "./run-here.ts";

async function temporaryDirectory(): Promise<string> {
  const path = await realpath(await mkdtemp(join(tmpdir(), "whetstone-ui-")));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

async function writeRun(path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "events.jsonl"), '{"seq":0,"type":"run-start","steps":5}\n');
}

/** Follows a login link and returns the names of the runs that its session shows. */
async function runsBehind(link: string): Promise<string[]> {
  const answer = await fetch(link, { redirect: "manual" });
  const cookie = answer.headers.getSetCookie()[0]?.split(";")[0] ?? "";
  const runs = await fetch(new URL("/ui/api/runs", link), { headers: { cookie } });
  return ((await runs.json()) as { name: string }[]).map(({ name }) => name).sort();
}

test("prints a one-time link to the running service, which then shows the given directories", async () => {
  const dataDir = await temporaryDirectory();
  const [root, other] = [await temporaryDirectory(), await temporaryDirectory()];
  await writeRun(join(root, "known"));
  await writeRun(join(other, "given"));
  await using service = await startTestService({ dataDir, runs: [root] });
  const { code, stdout } = await runHere("ui", other, "--data-dir", dataDir, "--json");
  const { url, expires } = JSON.parse(stdout) as { url: string; expires: string };
  expect([code, url.startsWith(`${service.url}/ui/login?code=`), expires]).toEqual([0, true, expect.stringMatching(/^\d{4}-.*Z$/)]);
  expect(stdout).not.toContain(service.apiKey);
  expect(await runsBehind(url)).toEqual(["given", "known"]);

  const text = await runHere("ui", "--data-dir", dataDir, "--no-open");
  expect(text.stdout).toMatch(/^Dashboard: http:\/\/127\.0\.0\.1:\d+\/ui\/login\?code=\S{43}\nThe link works once, for one minute\.\n$/);
  const missing = await runHere("ui", join(other, "missing"), "--data-dir", dataDir, "--no-open");
  expect([missing.code, missing.stderr]).toEqual([1, expect.stringMatching(/missing does not exist/)]);

  vi.stubEnv("WHETSTONE_BASE_URL", `${service.url}/v1/`);
  vi.stubEnv("WHETSTONE_API_KEY", service.apiKey);
  onTestFinished(() => void vi.unstubAllEnvs());
  const remote = await runHere("ui", "--json");
  expect(await runsBehind((JSON.parse(remote.stdout) as { url: string }).url)).toEqual(["given", "known"]);
  vi.stubEnv("WHETSTONE_API_KEY", "");
  expect(await runHere("ui", "--json")).toMatchObject({ code: 1, stderr: expect.stringContaining("set WHETSTONE_API_KEY") as string });
});

test("starts a service if none runs, until interrupted", async () => {
  const [dataDir, root] = [await temporaryDirectory(), await temporaryDirectory()];
  await writeRun(join(root, "given"));
  const { WHETSTONE_BASE_URL: _url, WHETSTONE_API_KEY: _key, ...env } = process.env;
  const args = ["--conditions=whetstone/source", "--import", "tsx", "src/cli/main.ts", "ui", root, "--data-dir", dataDir, "--json"];
  const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  const exited = once(child, "exit");
  let printed = "";
  for await (const chunk of child.stdout.iterator({ destroyOnReturn: false })) {
    printed += String(chunk);
    if (printed.endsWith("\n")) break;
  }
  expect(await runsBehind((JSON.parse(printed) as { url: string }).url)).toContain("given");
  child.kill("SIGINT");
  expect(await exited).toEqual([0, null]);
  await expect(readFile(join(dataDir, "service.json"))).rejects.toThrow("ENOENT");
});

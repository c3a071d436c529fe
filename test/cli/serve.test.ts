import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

async function run(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, ["--conditions=whetstone/source", "--import", "tsx", MAIN, ...args], { stdio: ["ignore", "pipe", "pipe"] });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  return { code, stdout, stderr };
}

test("what is not known is refused with a suggestion, and help is help", async () => {
  const command = await run("sevre");
  expect([command.code, command.stderr]).toEqual([2, expect.stringContaining("Did you mean serve?")]);
  const option = await run("serve", "--prot", "1");
  expect([option.code, option.stderr]).toEqual([2, expect.stringContaining("Did you mean --port?")]);
  const value = await run("serve", "--port", "70000");
  expect([value.code, value.stderr]).toEqual([2, expect.stringContaining("0 to 65535")]);
  const help = await run("--help");
  expect([help.code, help.stdout]).toEqual([0, expect.stringContaining("serve")]);
});

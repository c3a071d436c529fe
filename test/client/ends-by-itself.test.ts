import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ROOT } from "../project/files.ts";

test("a script that connects and never closes still exits, and releases the directory", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "whetstone-ends-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  const script = `
    import { connect } from "whetstone";
    const service = await connect({ dataDir: ${JSON.stringify(dataDir)} });
    console.log(JSON.stringify(await service.health()));
  `;
  const run = async () => {
    const args = ["--input-type=module", "--eval", script];
    // Without the environment's settings the script starts its own service.
    const env = { ...process.env, WHETSTONE_BASE_URL: "", WHETSTONE_API_KEY: "" };
    const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
    onTestFinished(() => void child.kill("SIGKILL"));
    let written = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (written += text));
    const [code] = (await once(child, "close")) as [number | null];
    return { code, written };
  };
  const healthy = { code: 0, written: expect.stringMatching(/^\{"status":"ok"/) };
  expect(await run()).toEqual(healthy);
  expect(await run()).toEqual(healthy);
});

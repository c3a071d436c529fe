import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { ConfigError } from "whetstone/errors";
import { defaults } from "../../recipes/reverse-text/config.ts";
import { writeSettings } from "../../recipes/shared/settings.ts";
import { builtProgram } from "../support/built-program.ts";
import { TINY } from "./run-recipe.ts";

const SETTINGS = { recipe: "quickstart", flags: [], ...defaults };

async function temporaryDirectory(): Promise<string> {
  const directory = await realpath(await mkdtemp(join(tmpdir(), "whetstone-settings-")));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** Runs the quickstart in a directory, and interrupts it after a line with the text. */
async function quickstart(cwd: string, args: readonly string[], interruptAfter?: string) {
  const main = await builtProgram(new URL("../../recipes/quickstart/main.ts", import.meta.url));
  const env = { ...process.env, npm_lifecycle_event: "quickstart" };
  const child = spawn(process.execPath, [main, ...args], { cwd, env, stdio: ["ignore", "ignore", "pipe"], timeout: 110_000 });
  let printed = "";
  child.stderr.on("data", (chunk: Buffer) => {
    printed += chunk.toString();
    if (interruptAfter !== undefined && printed.includes(interruptAfter)) {
      interruptAfter = undefined;
      child.kill("SIGINT");
    }
  });
  const [[code], stderr] = await Promise.all([once(child, "close") as Promise<[number | null]>, text(child.stderr)]);
  return { code, stderr };
}

test("a start with the same settings, or with more steps, resumes the run", async () => {
  const directory = join(await temporaryDirectory(), "run");
  await writeSettings(SETTINGS, directory);
  await writeSettings(SETTINGS, directory);
  const longer = { ...SETTINGS, rl: { ...SETTINGS.rl, steps: 400 } };
  await writeSettings(longer, directory);
  expect(JSON.parse(await readFile(join(directory, "config.json"), "utf8"))).toEqual(longer);
  expect(await readdir(directory)).toEqual(["config.json"]);
});

test.each([
  ["another seed", { seed: 2 }, "seed 1; got seed 2."],
  ["another flag", { flags: ["shuffle-rewards"] }, 'flags []; got flags ["shuffle-rewards"].'],
  ["another recipe", { recipe: "reverse-text" }, 'recipe "quickstart"; got recipe "reverse-text".'],
  ["an adapter", { loraRank: 8 }, "loraRank not set; got loraRank 8."],
  [
    "a nested setting",
    { rl: { ...defaults.rl, prompts: 4, groupSize: 2 } },
    "rl.prompts 16, rl.groupSize 16; got rl.prompts 4, rl.groupSize 2.",
  ],
])("a start with %s fails and changes nothing", async (_, changed, differences) => {
  const directory = await temporaryDirectory();
  await writeSettings(SETTINGS, directory);
  const before = await readFile(join(directory, "config.json"), "utf8");
  await expect(writeSettings({ ...SETTINGS, ...changed }, directory)).rejects.toThrow(
    new ConfigError(
      `Expected the settings of the run in ${directory}: ${differences} ` +
        "Start with the same options to resume the run, or choose another --run-dir for a new run",
      { param: "run-dir" },
    ),
  );
  expect(await readFile(join(directory, "config.json"), "utf8")).toBe(before);
});

test("a config.json that is not JSON is reported with its path", async () => {
  const directory = await temporaryDirectory();
  await writeFile(join(directory, "config.json"), '{"seed": 1');
  await expect(writeSettings(SETTINGS, directory)).rejects.toThrow(/^Expected .*config\.json to be the JSON settings of a run/u);
});

test("after Ctrl-C, the printed command resumes the run, and another seed is rejected", { timeout: 120_000 }, async () => {
  const cwd = await temporaryDirectory();
  const stopped = await quickstart(cwd, [...TINY, "--seed", "3"], "untrained");
  const [runDir] = await readdir(join(cwd, "runs"));
  expect(stopped.stderr).toContain(`\n  npm run quickstart -- ${TINY.join(" ")} --seed 3 --run-dir runs/${runDir}\n`);
  expect(stopped.code).toBe(130);

  const rejected = await quickstart(cwd, [...TINY, "--seed", "4", "--run-dir", `runs/${runDir}`]);
  expect(rejected.stderr).toMatch(/^Expected the settings of the run in .*: seed 3; got seed 4\./u);
  expect(rejected.code).toBe(1);

  const resumed = await quickstart(cwd, [...TINY, "--seed", "3", "--run-dir", `runs/${runDir}`]);
  expect(resumed.stderr).toContain("after practice");
  expect(resumed.code).toBe(0);
});

/** The display on a real pseudo-terminal, made by `script` of util-linux. */
import { spawnSync } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { ROOT } from "../project/files.ts";
import { Screen } from "./screen.ts";

const isUtilLinux = spawnSync("script", ["--version"], { encoding: "utf8" }).stdout?.includes("util-linux") === true;

const PROGRAM = `
import { gatherTrajectoryGroups } from ${JSON.stringify(join(ROOT, "src/library/rollout/index.ts"))};
import { trajectory } from ${JSON.stringify(join(ROOT, "src/base/trajectory/index.ts"))};

const rollout = async (scenario: number, { index }: { index: number }) => {
  await new Promise((done) => setTimeout(done, 60));
  if (index === 0) console.log("scenario", scenario);
  if (scenario === 2 && index === 1) process.stdout.write("in two ");
  if (scenario === 3 && index === 1) process.stdout.write("parts\\n");
  if (scenario === 4 && index === 1) throw new RangeError("no answer");
  return trajectory({ messages: [] }).finish({ reward: scenario });
};
const options = { groupSize: 2, concurrency: 1, maxExceptions: 2 };
await gatherTrajectoryGroups([1, 2, 3, 4], rollout, options);
console.log("done");
`;

it.skipIf(!isUtilLinux)("shows the block below the output of the program and leaves both intact (needs util-linux)", async () => {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-terminal-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  await writeFile(join(directory, "program.ts"), PROGRAM);
  await writeFile(join(directory, "package.json"), '{"type":"module"}');
  const command = `stty cols 70 rows 24; exec ${process.execPath} --conditions=whetstone/source --import ${import.meta.resolve("tsx")} program.ts`;
  const { CI: _, WHETSTONE_PROGRESS: __, ...inherited } = process.env;
  const env = { ...inherited, TERM: "xterm", NO_COLOR: "1", TSX_TSCONFIG_PATH: join(ROOT, "tsconfig.json") };
  const { status } = spawnSync("script", ["-qefc", command, "typescript"], { cwd: directory, env, encoding: "utf8" });
  expect(status).toBe(0);
  // The first and the last line of the recording are from `script` itself.
  const recording = (await readFile(join(directory, "typescript"), "utf8")).split("\n").slice(1, -2).join("\n");
  expect(recording).toMatch(/rollouts {2}\[#+-+\] \d+ %/);
  expect(recording).not.toContain("\u001b[?25l");
  const screen = new Screen(70);
  screen.write(recording.replaceAll("\r", ""));
  expect(screen.text.replace(/\d+ s;/u, "N s;").split("\n")).toEqual([
    "scenario 1",
    "scenario 2",
    "in two scenario 3",
    "parts",
    "scenario 4",
    "rollouts: rollout failed with RangeError: no answer",
    "rollouts: 8/8 rollouts, 1 failed, reward 2.286, N s; failures: RangeEr",
    "ror ×1",
    "done",
  ]);
});

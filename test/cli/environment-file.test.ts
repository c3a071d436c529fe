/** Environment files in projects that depend on the package alone. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import Module from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { buildPackage, type BuiltPackage } from "../support/built-package.ts";
import { runHere } from "./run-here.ts";
import { useSharedService } from "./shared-service.ts";

useSharedService();

const environment = (name: string, question: string) => `defineEnvironment({
  name: "${name}",
  scenarios: { train: [{ id: "a" }], eval: [] },
  rollout: () => Promise.reject(new Error(${question})),
  rewards: [{ name: "right", score: ({ text }) => (text === "yes" ? 1 : 0) }],
  gold: () => "yes",
})`;

const FILES: Readonly<Record<string, string>> = {
  // TypeScript that has no JavaScript syntax, imported by the name of its output.
  "task.ts": `export enum Kind { Plain = "plain" }\nexport const question = (kind: Kind): string => kind;\n`,
  "named.ts": `import { defineEnvironment } from "whetstone";
import { Kind, question } from "./task.js";
export const only = ${environment("named", "question(Kind.Plain)")};\n`,
  "several.mjs": `import { defineEnvironment } from "whetstone";
export const first = ${environment("one", '"none"')};
export const second = ${environment("two", '"none"')};
export default first;\n`,
  "plays.ts": `import { defineEnvironment, trajectory } from "whetstone";
export default defineEnvironment({
  name: "plays",
  scenarios: { train: ["ab", "ba"], eval: ["aa", "bb"] },
  async rollout(text, { policy, sampling }) {
    const t = trajectory({ messages: [{ role: "user", content: \`Repeat: \${text as string}\` }] });
    await t.sample(policy, { maxCompletionTokens: 2, ...sampling });
    return t;
  },
  rewards: [{ name: "length", score: ({ text }) => 1 / (1 + text.length) }],
  groupRewards: [{ name: "rank", scoreGroup: ({ trajectories }) => trajectories.map((_, index) => index) }],
});\n`,
  "awaits.ts": `export default (await import("./named.ts")).only;\n`,
};

let built: BuiltPackage;
const projects: Record<string, string> = {};

beforeAll(async () => {
  built = await buildPackage();
  for (const type of ["module", "commonjs"]) {
    const project = await mkdtemp(join(tmpdir(), `whetstone-${type}-`));
    projects[type] = project;
    await writeFile(join(project, "package.json"), JSON.stringify({ type }));
    for (const [name, text] of Object.entries(FILES)) await writeFile(join(project, name), text);
    for (const name of ["plays.mts", "plays.cts"]) await writeFile(join(project, name), FILES["plays.ts"]!);
    await built.install(project);
  }
});
afterAll(async () => {
  for (const project of Object.values(projects)) await rm(project, { recursive: true, force: true });
  await built.remove();
});

test.each([
  ["module", "named.ts", "named"],
  ["commonjs", "named.ts", "named"],
])("an environment file in a %s project runs without any other tool: %s", async (type, file, name) => {
  const { stdout, stderr } = await built.whetstone(projects[type]!, "validate", file);
  expect([stdout, stderr]).toEqual([expect.stringContaining(`${name}: valid; 1 right answer `), ""]);
});

test.each([
  ["module", "plays.ts"],
  ["module", "plays.cts"],
  ["commonjs", "plays.ts"],
  ["commonjs", "plays.mts"],
])("train and eval run the rollouts of an environment file in a %s project: %s", { timeout: 120_000 }, async (type, file) => {
  const model = ["--model", `${type}/${file.replace(".", "-")}`];
  const settings = ["--steps", "1", "--scenarios", "2", "--group-size", "2", "--run-dir", `runs/${file}`];
  const trained = await built.whetstone(projects[type]!, "train", file, ...model, ...settings);
  expect([trained.code, trained.stdout], trained.stderr).toEqual([0, expect.stringMatching(/^completed after 1 step;/u)]);
  const evaluated = await built.whetstone(projects[type]!, "eval", file, ...model, "--json");
  expect(evaluated.code, evaluated.stderr).toBe(0);
  expect(JSON.parse(evaluated.stdout)).toMatchObject({ environment: "plays", scenarios: 2, exceptions: 0 });
});

test("a CommonJS file with a top-level await is rejected with the remedy", async () => {
  const { code, stderr } = await runHere("validate", join(projects["commonjs"]!, "awaits.ts"), "--json");
  const { error } = JSON.parse(stderr) as { error: { code: string; message: string } };
  expect([code, error.code]).toEqual([1, "E_CONFIG"]);
  expect(error.message).toMatch(/Top-level await.*rename it to \.mts, or set "type": "module"/su);
});

test("--env selects one of several environments by its name or the name of its export", async () => {
  const several = join(projects["module"]!, "several.mjs");
  const without = await runHere("validate", several);
  expect([without.code, without.stderr]).toEqual([
    1,
    expect.stringContaining("one (export first), two (export second), one (export default)"),
  ]);
  for (const [env, name] of [
    ["two", "two"],
    ["second", "two"],
    ["default", "one"],
    ["one", "one"],
  ])
    expect((await runHere("validate", several, "--env", env!)).stdout).toContain(`${name}: valid`);
  const unknown = await runHere("validate", several, "--env", "three");
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringContaining('exports no environment "three"; it exports one (export first)'),
  ]);
});

test("several environment files in one process share one loader", async () => {
  const spy = vi.spyOn(Module, "register");
  onTestFinished(() => spy.mockRestore());
  const file = join(import.meta.dirname, "../../template/environment.ts");
  for (let turn = 0; turn < 3; turn++) expect(await runHere("validate", file)).toMatchObject({ code: 0 });
  expect(spy.mock.calls.length).toBeLessThanOrEqual(1);
});

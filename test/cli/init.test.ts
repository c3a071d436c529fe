/** A project that `whetstone init` creates, with the built package in place of an installed one. */
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { packageJson, read, ROOT } from "../project/files.ts";
import { buildPackage, type BuiltPackage, runNode } from "../support/built-package.ts";
import { runHere } from "./run-here.ts";

let built: BuiltPackage;
let parent: string;
let project: string;

beforeAll(async () => {
  built = await buildPackage();
  parent = await mkdtemp(join(tmpdir(), "whetstone-init-"));
  project = join(parent, "My Agent");
});
afterAll(async () => {
  await rm(parent, { recursive: true, force: true });
  await built.remove();
});

test("creates a project whose test passes and whose model trains a step", { timeout: 120_000 }, async () => {
  const created = await runHere("init", project);
  expect([created.code, created.stderr]).toEqual([0, ""]);
  expect((await readdir(project)).toSorted()).toEqual(
    [".gitignore", ".npmrc", "README.md", "environment.test.ts", "environment.ts", "package.json", "tsconfig.json"].toSorted(),
  );
  const about = JSON.parse(await readFile(join(project, "package.json"), "utf8"));
  expect(about).toMatchObject({
    name: "my-agent",
    type: "module",
    dependencies: { whetstone: (JSON.parse(read("package.json")) as { version: string }).version },
  });
  expect(about.devDependencies).toEqual({ tsx: packageJson.dependencies["tsx"] });
  await built.install(project);
  await symlink(join(ROOT, "node_modules", "tsx"), join(project, "node_modules", "tsx"));

  const [program, ...args] = about.scripts.test.split(" ") as string[];
  expect(program).toBe("node");
  const tested = await runNode(project, ...args);
  expect([tested.code, tested.stdout]).toEqual([0, expect.stringMatching(/pass 2\n.*fail 0/su)]);

  const train = about.scripts.train.replace("whetstone ", "").replace("--steps 10", "--steps 1 --scenarios 2 --group-size 2");
  const trained = await built.whetstone(project, ...train.split(" "), "--json");
  const events = trained.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { type: string; reason?: string; seq: number | null });
  expect([trained.code, events.at(-1)]).toEqual([0, expect.objectContaining({ type: "run-end", reason: "completed" })]);
  const recorded = events.filter(({ seq }) => seq !== null);
  const file = await readFile(join(project, "runs", "backwards-backwards", "events.jsonl"), "utf8");
  expect(recorded).toEqual(
    file
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown),
  );
});

test("replaces no file", async () => {
  const directory = await mkdtemp(join(parent, "existing-"));
  await writeFile(join(directory, "README.md"), "mine");
  const refused = await runHere("init", directory, "--json");
  expect(JSON.parse(refused.stderr)).toMatchObject({
    error: { code: "E_CONFIG", message: expect.stringContaining("without README.md") as string },
  });
  expect(await readdir(directory)).toEqual(["README.md"]);
  expect(await readFile(join(directory, "README.md"), "utf8")).toBe("mine");
});

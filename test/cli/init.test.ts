/** A project that `whetstone init` creates, with the built package in place of an installed one. */
import { cp, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { packageJson, ROOT } from "../project/files.ts";
import { buildPackage, type BuiltPackage, runNode } from "../support/built-package.ts";
import { runHere } from "./run-here.ts";

const DEV_DEPENDENCIES = {
  "@types/node": packageJson.devDependencies["@types/node"],
  tsx: packageJson.dependencies["tsx"],
  typescript: packageJson.devDependencies["typescript"],
};

let built: BuiltPackage;
let parent: string;
let project: string;

beforeAll(async () => {
  built = await buildPackage();
  parent = await mkdtemp(join(tmpdir(), "whetstone-init-"));
  project = join(parent, "My Agent");
});
async function installDevDependencies(directory: string): Promise<void> {
  await mkdir(join(directory, "node_modules", "@types"), { recursive: true });
  for (const name of Object.keys(DEV_DEPENDENCIES)) await symlink(join(ROOT, "node_modules", name), join(directory, "node_modules", name));
}

afterAll(async () => {
  await rm(parent, { recursive: true, force: true });
  await built.remove();
});

test("creates a project; its test passes and its model trains a step", { timeout: 120_000 }, async () => {
  const created = await runHere("init", project);
  expect([created.code, created.stderr]).toEqual([0, ""]);
  expect((await readdir(project)).toSorted()).toEqual(
    [".gitignore", ".npmrc", "README.md", "environment.test.ts", "environment.ts", "package.json", "tsconfig.json"].toSorted(),
  );
  const about = JSON.parse(await readFile(join(project, "package.json"), "utf8"));
  expect(about).toMatchObject({
    name: "my-agent",
    type: "module",
    dependencies: { whetstone: `file:${relative(project, ROOT)}` },
  });
  expect(about.devDependencies).toEqual(DEV_DEPENDENCIES);
  await built.install(project);
  await installDevDependencies(project);

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
  const file = await readFile(join(project, "runs", "backwards", "events.jsonl"), "utf8");
  expect(recorded).toEqual(
    file
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown),
  );
});

test("completes the package.json that `npm init` wrote; the CommonJS project then passes its test", { timeout: 120_000 }, async () => {
  const directory = await mkdtemp(join(parent, "npm-init-"));
  const written = {
    name: "mine",
    type: "commonjs",
    scripts: { test: 'echo "Error: no test specified" && exit 1', train: "mine" },
    dependencies: { whetstone: "file:../whetstone-0.1.0.tgz" },
    devDependencies: { tsx: "^4.0.0" },
  };
  await writeFile(join(directory, "package.json"), JSON.stringify(written));
  await built.install(directory);
  const created = await built.whetstone(directory, "init", "--json");
  expect([created.code, created.stderr]).toEqual([0, ""]);
  expect((JSON.parse(created.stdout) as { keptScripts: string[] }).keptScripts).toEqual(["train"]);
  const about = JSON.parse(await readFile(join(directory, "package.json"), "utf8"));
  expect(about).toMatchObject({ ...written, scripts: { train: "mine" }, devDependencies: { ...DEV_DEPENDENCIES, tsx: "^4.0.0" } });
  expect(about.scripts.test).toBe("node --import tsx --test environment.test.ts");
  await installDevDependencies(directory);
  const tested = await runNode(directory, ...(about.scripts.test as string).split(" ").slice(1));
  expect([tested.code, tested.stdout]).toEqual([0, expect.stringMatching(/pass 2\n.*fail 0/su)]);
  const validated = await built.whetstone(directory, "validate", "environment.ts");
  expect([validated.code, validated.stdout]).toEqual([0, expect.stringContaining("backwards: valid")]);
});

test("writes the specifier of the package that runs, from the project that contains it", async () => {
  const home = await mkdtemp(join(parent, "home-"));
  await mkdir(join(home, "node_modules"), { recursive: true });
  await cp(built.directory, join(home, "node_modules", "whetstone"), { recursive: true });
  await symlink(join(ROOT, "node_modules"), join(home, "node_modules", "whetstone", "node_modules"));
  for (const [given, expected] of [
    ["file:../whetstone.tgz", "file:../../whetstone.tgz"],
    ["^0.1.0", "^0.1.0"],
  ] as const) {
    await writeFile(join(home, "package.json"), JSON.stringify({ dependencies: { whetstone: given } }));
    const created = await built.whetstone(home, "init", `agent-${given.length}`);
    expect([created.code, created.stderr]).toEqual([0, ""]);
    const about = JSON.parse(await readFile(join(home, `agent-${given.length}`, "package.json"), "utf8"));
    expect(about.dependencies.whetstone).toBe(expected);
  }
});

test("rejects a package.json that is not one", async () => {
  const directory = await mkdtemp(join(parent, "damaged-"));
  await writeFile(join(directory, "package.json"), "[]");
  const refused = await runHere("init", directory, "--json");
  expect(JSON.parse(refused.stderr)).toMatchObject({
    error: { code: "E_CONFIG", message: expect.stringContaining("to be a package.json") as string },
  });
  expect(await readdir(directory)).toEqual(["package.json"]);
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

/** The program on versions of Node that the package does not support. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { packageJson } from "../project/files.ts";
import { buildPackage, type BuiltPackage, runNode } from "../support/built-package.ts";

const MAIN = join("node_modules", "whetstone", "dist", "cli", "main.js");
let built: BuiltPackage;
let project: string;

beforeAll(async () => {
  built = await buildPackage();
  project = await mkdtemp(join(tmpdir(), "whetstone-node-"));
  await built.install(project);
});
afterAll(async () => {
  await rm(project, { recursive: true, force: true });
  await built.remove();
});

/** Runs the program in this version of Node, which reports another version. */
function runAs(version: string, ...args: readonly string[]): ReturnType<typeof runNode> {
  const script = `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } });`;
  return runNode(project, "--import", `data:text/javascript,${encodeURIComponent(script)}`, MAIN, ...args);
}

const [, lowest] = /^>=(\d+\.\d+)$/u.exec((packageJson as unknown as { engines: { node: string } }).engines.node)!;

test.each(["18.20.8", "20.18.3"])("Node %s is rejected with the required version", async (version) => {
  const message = `Expected Node ${lowest} or newer, got ${version}. Install a newer Node from https://nodejs.org`;
  expect(await runAs(version, "--version")).toEqual({ code: 1, stdout: "", stderr: `error: ${message} (E_CONFIG)\n` });
  const { stderr } = await runAs(version, "doctor", "--json");
  expect(JSON.parse(stderr)).toEqual({ error: { code: "E_CONFIG", message, param: null } });
});

test.each([`${lowest}.0`, "22.0.0"])("Node %s runs the program", async (version) => {
  expect(await runAs(version, "--version")).toEqual({ code: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/u), stderr: "" });
});

/** Returns the names that a file and the files it imports statically import, apart from these files. */
async function importedBy(file: string): Promise<string[]> {
  const text = await readFile(file, "utf8");
  const names = [...text.matchAll(/^(?:import|export)\b[^;(]*?"([^"]+)"/gmu)].map(([, name]) => name!);
  const nested = names.map(async (name) => (name.startsWith(".") ? importedBy(join(dirname(file), name)) : [name]));
  return (await Promise.all(nested)).flat();
}

test("the program loads no package and no module of Node before it checks the version", async () => {
  expect(await importedBy(join(project, MAIN))).toEqual([]);
  expect(await importedBy(join(project, MAIN, "..", "..", "index.js"))).toContain("zod");
});

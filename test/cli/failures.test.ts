import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { InterruptedError, reportFailure } from "../../src/cli/failure.ts";
import { commandTree, createProgram } from "../../src/cli/program.ts";
import { temporaryDirectory } from "../service/support.ts";
import { runHere } from "./run-here.ts";

test("every command has --json", () => {
  const leaves = commandTree(createProgram("0")).filter(({ commands }) => commands.length === 0);
  expect(leaves.length).toBeGreaterThan(6);
  for (const command of leaves)
    expect(
      command.options.map(({ long }) => long),
      command.name(),
    ).toContain("--json");
});

test("the help of no command shows an empty list or object as a default, and shows other defaults", () => {
  for (const command of commandTree(createProgram("0"))) expect(command.helpInformation(), command.name()).not.toMatch(/default: [[{]/u);
  const train = commandTree(createProgram("0")).find((command) => command.name() === "train");
  expect(train?.helpInformation()).toContain('(default: "whetstone-tiny")');
});

test("with --json, a failed command writes its error as one JSON object to standard error", async () => {
  const dataDir = join(await temporaryDirectory(), "none");
  const failed = await runHere("verify", "--data-dir", dataDir, "--json");
  expect([failed.code, failed.stdout]).toEqual([1, ""]);
  const message = expect.stringContaining("Expected a data directory with a SQLite database") as string;
  expect(JSON.parse(failed.stderr)).toEqual({ error: { code: "E_CONFIG", message, param: "dataDir" } });
  const text = await runHere("verify", "--data-dir", dataDir);
  expect(text.stderr).toMatch(/^error: Expected a data directory.* \(E_CONFIG\)\n$/u);
});

test.each([[["--jsn"]], [["extra"]], [["--count", "none"]]])("with --json, a usage error is a JSON object: %j", async (args) => {
  const { code, stdout, stderr } = await runHere("validate", "file.ts", ...args, "--json");
  expect([code, stdout]).toEqual([2, ""]);
  expect(JSON.parse(stderr)).toEqual({ error: { code: "E_USAGE", message: expect.not.stringMatching(/^error/u) as string, param: null } });
});

test.each([
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["parent-exit", 143],
] as const)("a command that %s stops exits with %d and names the reason", (reason, code) => {
  let written = "";
  vi.spyOn(process.stderr, "write").mockImplementation((text) => (written += String(text)) !== "");
  expect(reportFailure(new InterruptedError(reason, "; start it again"), false)).toBe(code);
  expect(written).toMatch(/^stopped by .*; start it again\n$/u);
  expect(reportFailure(new InterruptedError(reason), true)).toBe(code);
  expect(written.split("\n")[1]).toContain('{"error":{"code":"E_INTERRUPTED"');
  vi.restoreAllMocks();
});

test("with --json, an unexpected error is a JSON object with the code E_INTERNAL", () => {
  const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  expect(reportFailure(new TypeError("broken"), true)).toBe(1);
  expect(write).toHaveBeenCalledWith('{"error":{"code":"E_INTERNAL","message":"broken","param":null}}\n');
  write.mockRestore();
});

test.each([
  [["models", "lst"], "error: unknown command 'lst'\n(expected one of: list, show, delete)\n"],
  [["jobs", "lst", "--json"], /"E_USAGE".*unknown command 'lst'/u],
  [["artifacts", "lst"], "error: unknown command 'lst'\n(expected one of: list, show, delete)\n"],
  [["train", "file.ts", "--step", "3"], "error: unknown option '--step'\n(Did you mean --steps?)\n"],
  [["train", "file.ts", "--steps", "3"], "error: required option '--model <project/name>' not specified\n"],
] as const)("the first mistake of a command line is reported: %j", async (args, expected) => {
  const { code, stdout, stderr } = await runHere(...args);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toMatch(expected);
});

test("a directory that cannot be written is reported with a remedy", async () => {
  const file = join(await temporaryDirectory(), "file");
  await writeFile(file, "");
  const directory = join(file, "below");
  const created = await runHere("init", directory);
  expect([created.code, created.stderr]).toEqual([
    1,
    `error: The project directory '${directory}' cannot be written: ENOTDIR: not a directory, mkdir '${directory}'. Make it writable, or choose another (E_CONFIG)\n`,
  ]);
  vi.stubEnv("WHETSTONE_HOME", directory);
  const listed = await runHere("models");
  vi.unstubAllEnvs();
  expect([listed.code, listed.stderr]).toEqual([
    1,
    expect.stringMatching(
      /cannot be created: ENOTDIR.*\. Make it writable, or set WHETSTONE_HOME or `--data-dir` to another directory \(E_CONFIG\)/u,
    ),
  ]);
});

/** Completion scripts in the shells themselves. */
import { execFileSync, spawnSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryDirectory } from "../service/support.ts";
import { runHere } from "./run-here.ts";

async function scriptOf(shell: string): Promise<string> {
  const path = join(await temporaryDirectory(), `completion.${shell}`);
  const { code, stdout } = await runHere("completion", shell);
  expect(code).toBe(0);
  await writeFile(path, stdout);
  return path;
}

const has = (shell: string): boolean => spawnSync(shell, ["--version"]).status === 0;

test("bash completes commands, options and values at every level", { skip: !has("bash") }, async () => {
  const script = await scriptOf("bash");
  const complete = (...words: string[]) => {
    const code = `source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _whetstone; echo "\${COMPREPLY[*]}"`;
    return execFileSync("bash", ["--norc", "-c", code, script, ...words], { encoding: "utf8" })
      .trim()
      .split(" ");
  };
  expect(complete("whetstone", "jo")).toEqual(["jobs"]);
  expect(complete("whetstone", "")).toEqual(expect.arrayContaining(["serve", "train", "models", "doctor"]));
  expect(complete("whetstone", "jobs", "c")).toEqual(["cancel"]);
  expect(complete("whetstone", "jobs", "list", "--st")).toEqual(["--status"]);
  expect(complete("whetstone", "jobs", "list", "--status", "s")).toEqual(["succeeded"]);
  expect(complete("whetstone", "serve", "--engine", "t")).toEqual(["tinker"]);
  expect(complete("whetstone", "models", "delete", "demo/x", "-")).toEqual(expect.arrayContaining(["-y", "--yes", "--json"]));
  expect(complete("whetstone", "completion", "")).toEqual(["bash", "zsh", "fish"]);
  // An argument that is not known completes to files, which bash does itself.
  expect(complete("whetstone", "train", "")).toEqual([""]);
  expect(execFileSync("bash", ["--norc", "-c", `source "${script}"; complete -p whetstone`], { encoding: "utf8" })).toContain(
    "-o default -F _whetstone",
  );
});

test("zsh completes commands, options and values with their descriptions", { skip: !has("zsh") }, async () => {
  const script = await scriptOf("zsh");
  const stubs = `compdef() { :; }; source "$1"; shift; _describe() { print -l -- \${(P)2}; }; _files() { print files; }; compadd() { print -l "\${@:2}"; }`;
  const complete = (...line: string[]) =>
    execFileSync("zsh", ["-f", "-c", `${stubs}; words=("$@"); CURRENT=$#words; _whetstone`, "zsh", script, ...line], { encoding: "utf8" })
      .trim()
      .split("\n");
  expect(complete("whetstone", "jobs", "")).toContain("cancel:cancel an unfinished job; it leaves no checkpoint");
  expect(complete("whetstone", "jobs", "list", "--status", "")).toContain("succeeded");
  expect(complete("whetstone", "serve", "--")).toContainEqual(expect.stringMatching(/^--port:port to listen on/u));
  expect(complete("whetstone", "train", "")).toEqual(["files"]);
});

test("fish completes commands, options and values with their descriptions", { skip: !has("fish") }, async () => {
  const script = await scriptOf("fish");
  const complete = (line: string) =>
    execFileSync("fish", ["--no-config", "-c", `source ${script}; complete -C ${JSON.stringify(line)}`], { encoding: "utf8" });
  expect(complete("whetstone jobs c")).toBe("cancel\tcancel an unfinished job; it leaves no checkpoint\n");
  expect(complete("whetstone jobs list --stat")).toContain("--status\t");
  expect(complete("whetstone jobs list --status s")).toContain("succeeded");
  expect(complete("whetstone completion z")).toContain("zsh");
});

test("completion rejects an unknown shell, and prints the script in JSON", async () => {
  expect((await runHere("completion", "tcsh")).code).toBe(2);
  const { stdout } = await runHere("completion", "bash", "--json");
  expect(JSON.parse(stdout)).toEqual({ shell: "bash", script: expect.stringContaining("complete -o default") as string });
});

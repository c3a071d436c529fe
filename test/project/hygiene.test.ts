import { describe, expect, it } from "vitest";
import { projectFiles, read } from "./files.ts";

const BINARY = /\.(?:onnx|safetensors|gz|png|ico|node|db)$/u;
const files = projectFiles().filter((file) => !BINARY.test(file));

/** Paths of a single machine, concatenated so that this file does not match. */
const MACHINE_PATHS = new RegExp(`(?<![\\w.~*}-])/(?:${["work", "root", "home/\\w+", "Users/\\w+", "tmp"].join("|")})/\\w`, "u");

/** Patterns of well-known kinds of keys. */
const SECRETS = new RegExp(
  [
    "AKIA[0-9A-Z]{16}",
    "gh[pousr]_[A-Za-z0-9]{36}",
    "hf_[A-Za-z0-9]{30,}",
    "sk-[A-Za-z0-9_-]{32,}",
    "npm_[A-Za-z0-9]{36}",
    "-----BEGIN [A-Z ]*PRIVATE" + " KEY",
  ].join("|"),
  "u",
);

/** Returns the lines of `file` that match, as `file:line`. */
function places(file: string, pattern: RegExp): string[] {
  return read(file)
    .split("\n")
    .flatMap((line, index) => (pattern.test(line) ? [`${file}:${index + 1}`] : []));
}

/** Ways to write to a terminal or a log. Examples in doc comments may print. */
const WRITES = /process\.(?:stdout|stderr)\.|(?<![\w.])console\.|process\.emitWarning/u;

describe("the source files", () => {
  it("write to standard output and standard error only in the file that encodes text", () => {
    const sources = files.filter((file) => /^src\/.*\.ts$/u.test(file));
    const code = (file: string) =>
      read(file)
        .split("\n")
        .filter((line) => !/^\s*(?:\*|\/\/|\/\*)/u.test(line))
        .join("\n");
    expect(sources.filter((file) => WRITES.test(code(file)))).toEqual(["src/base/util/output.ts"]);
  });
});

describe("the text of the project", () => {
  it("contains no path of a developer's machine", () => {
    expect(files.flatMap((file) => places(file, MACHINE_PATHS))).toEqual([]);
  });

  it("contains no key", () => {
    expect(files.flatMap((file) => places(file, SECRETS))).toEqual([]);
  });

  it("is checked with patterns that match both", () => {
    expect(`see /${"work"}/main`).toMatch(MACHINE_PATHS);
    expect(`cp "/${"tmp"}/x"`).toMatch(MACHINE_PATHS);
    expect(`https://service.example/${"work"}/x`).not.toMatch(MACHINE_PATHS);
    expect(`key = hf_${"a".repeat(34)}`).toMatch(SECRETS);
  });
});

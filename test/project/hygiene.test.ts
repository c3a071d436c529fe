import { describe, expect, it } from "vitest";
import { projectFiles, read } from "./files.ts";

const BINARY = /\.(?:onnx|safetensors|gz|png|ico|node|db)$/u;
const files = projectFiles().filter((file) => !BINARY.test(file));

/** Places of one machine. Put together here, so that this file does not contain what it looks for. */
const MACHINE_PATHS = new RegExp(`(?<![\\w.~*}-])/(?:${["work", "root", "home/\\w+", "Users/\\w+", "tmp"].join("|")})/\\w`, "u");

/** What the well-known kinds of keys look like. */
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

/** The lines of `file` that match, as `file:line`. */
function places(file: string, pattern: RegExp): string[] {
  return read(file)
    .split("\n")
    .flatMap((line, index) => (pattern.test(line) ? [`${file}:${index + 1}`] : []));
}

/** Ways to write to a terminal or a log. Examples in doc comments may print. */
const WRITES = /process\.(?:stdout|stderr)\.|(?<![\w.])console\.|process\.emitWarning/u;

describe("the sources", () => {
  it("write to standard output and standard error in one file alone, where text is encoded", () => {
    const sources = files.filter((file) => /^src\/.*\.ts$/u.test(file));
    const code = (file: string) =>
      read(file)
        .split("\n")
        .filter((line) => !/^\s*(?:\*|\/\/|\/\*)/u.test(line))
        .join("\n");
    expect(sources.filter((file) => WRITES.test(code(file)))).toEqual(["src/util/output.ts"]);
  });
});

describe("the project's text", () => {
  it("has no path of a machine it was written on", () => {
    expect(files.flatMap((file) => places(file, MACHINE_PATHS))).toEqual([]);
  });

  it("has no key", () => {
    expect(files.flatMap((file) => places(file, SECRETS))).toEqual([]);
  });

  it("would notice both", () => {
    expect(`see /${"work"}/main`).toMatch(MACHINE_PATHS);
    expect(`cp "/${"tmp"}/x"`).toMatch(MACHINE_PATHS);
    expect(`https://service.example/${"work"}/x`).not.toMatch(MACHINE_PATHS);
    expect(`key = hf_${"a".repeat(34)}`).toMatch(SECRETS);
  });
});

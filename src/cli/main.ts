#!/usr/bin/env node
// Imports only the output of text before the check of Node's version, because older versions cannot load some modules.
import { logLine, onClosedOutput } from "../base/util/output.ts";

/** Lowest supported version of Node, as in `engines` of package.json. */
const MIN_NODE = "20.19";
/** Exit code of a program that SIGPIPE ended (128 + 13), for a closed standard output. */
const CLOSED_OUTPUT = 141;

/** Whether a version of Node is at least {@link MIN_NODE}. */
function isSupported(version: string): boolean {
  const [minMajor = 0, minMinor = 0] = MIN_NODE.split(".").map(Number);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > minMajor || (major === minMajor && minor >= minMinor);
}

const { node } = process.versions;
if (isSupported(node)) {
  const { run } = await import("./program.ts");
  onClosedOutput(() => process.exit(CLOSED_OUTPUT));
  process.exitCode = await run(process.argv.slice(2));
} else {
  const message = `Expected Node ${MIN_NODE} or newer, got ${node}. Install a newer Node from https://nodejs.org`;
  const error = { code: "E_CONFIG", message, param: null };
  logLine(process.argv.includes("--json") ? JSON.stringify({ error }) : `error: ${message} (E_CONFIG)`);
  process.exitCode = 1;
}

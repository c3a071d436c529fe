/**
 * Packs the built package and uses it as a stranger would: `node scripts/pack-check.js` (after `npm run build`).
 *
 * The tarball is installed in an empty directory with npm 10 and with npm 11. There, each subpath is imported and type-checked, the
 * command line answers, no native code is loaded by the thin parts, and the README's commands lead to a trained policy and its report.
 * `PACK_NODES=20,24` follows the README with these versions of Node, too.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const NPM_VERSIONS = ["10", "11"];
const [OWN_NODE] = process.versions.node.split(".");
/** Major versions of Node for the README check: the running version, and the versions in `PACK_NODES=20,24`, which npm downloads. */
const NODE_VERSIONS = [...new Set([OWN_NODE, ...(process.env.PACK_NODES?.split(",") ?? [])])];
const PROGRAM_TIMEOUT_MS = 240_000;

const { version, dependencies, devDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

/** Program of a dependent package: imports every subpath without native code, and prints `thin` with the version last. */
const IMPORTS = `
import { connect, trajectory, gatherTrajectoryGroups, WhetstoneError } from "whetstone";
import { readTrajectories, writeTrajectories } from "whetstone/dataset";
import { chatCompletionRequest } from "whetstone/schema";
import { capture } from "whetstone/capture";
import { evaluate } from "whetstone/environment";
import { runAgent } from "whetstone/agent";
import { trainRl } from "whetstone/train";
import { writeReport } from "whetstone/report";
import { NotFoundError } from "whetstone/errors";
import { HttpError } from "whetstone/client";
import { passAtK } from "whetstone/trajectory";
import { rolloutSeed } from "whetstone/rollout";
import { pollJob } from "whetstone/follow";
const { fetch: captureFetch } = capture;
const found = { connect, trajectory, gatherTrajectoryGroups, readTrajectories, writeTrajectories, captureFetch, evaluate, runAgent, trainRl, HttpError, passAtK, rolloutSeed, pollJob };
for (const [name, value] of Object.entries(found)) if (typeof value !== "function") throw new Error(name + " is no function");
if (typeof chatCompletionRequest.parse !== "function") throw new Error("chatCompletionRequest is no schema");
const native = process.report.getReport().sharedObjects.filter((path) => /onnxruntime|sqlite/.test(path));
if (native.length > 0) throw new Error("native code was loaded: " + native.join(", "));
const { default: about } = await import("whetstone/package.json", { with: { type: "json" } });
// The page's scripts and styles are files of the package: only writing one shows that they were shipped.
const { mkdtempSync, writeFileSync } = await import("node:fs");
const runDir = mkdtempSync("run-");
writeFileSync(runDir + "/config.json", "{}");
const { sizeBytes } = await writeReport(runDir);
if (!(sizeBytes > 50_000)) throw new Error("the report has only " + sizeBytes + " bytes");
// The entries share their modules: an error that one of them throws is of the class that another one exports.
const error = await writeReport("nowhere").catch((reason) => reason);
if (!(error instanceof WhetstoneError && error instanceof NotFoundError)) throw new Error("writeReport threw another error: " + error);
console.log("thin " + about.version);
`;

/** An unused \`@ts-expect-error\` fails: a package whose types do not resolve is \`any\`, and then nothing is an error. */
const TYPES = `
import { connect } from "whetstone";
import { readTrajectories } from "whetstone/dataset";
import { chatCompletionRequest } from "whetstone/schema";
import { capture } from "whetstone/capture";
import { defineEnvironment } from "whetstone/environment";
import { runAgent } from "whetstone/agent";
import { trainRl } from "whetstone/train";
import { writeReport } from "whetstone/report";
import { startService } from "whetstone/service";
import * as engine from "whetstone/engine";
import { startTestService } from "whetstone/testing";
import { NotFoundError } from "whetstone/errors";
import { HttpError } from "whetstone/client";
import { passAtK } from "whetstone/trajectory";
import { rolloutSeed } from "whetstone/rollout";
import { pollJob } from "whetstone/follow";
// @ts-expect-error connect is a function
export const a: number = connect;
// @ts-expect-error readTrajectories is a function
export const b: number = readTrajectories;
// @ts-expect-error chatCompletionRequest is a schema
export const c: number = chatCompletionRequest;
// @ts-expect-error capture is an object
export const f: number = capture;
// @ts-expect-error defineEnvironment is a function
export const g: number = defineEnvironment;
// @ts-expect-error runAgent is a function
export const h: number = runAgent;
// @ts-expect-error trainRl is a function
export const i: number = trainRl;
// @ts-expect-error writeReport is a function
export const j: number = writeReport;
// @ts-expect-error startService is a function
export const d: number = startService;
// @ts-expect-error engine is a module
export const e: number = engine;
// @ts-expect-error startTestService is a function
export const k: number = startTestService;
// @ts-expect-error NotFoundError is a class
export const l: number = NotFoundError;
// @ts-expect-error HttpError is a class
export const m: number = HttpError;
// @ts-expect-error passAtK is a function
export const n: number = passAtK;
// @ts-expect-error rolloutSeed is a function
export const o: number = rolloutSeed;
// @ts-expect-error pollJob is a function
export const p: number = pollJob;
`;

function run(label, command, args, options = {}) {
  const { env, timeout, cwd } = { timeout: PROGRAM_TIMEOUT_MS, ...options };
  const result = spawnSync(command, args, {
    cwd,
    timeout,
    env: { ...process.env, ...env },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });
  if (result.error || result.status !== 0) {
    throw new Error(
      `${label} failed (${result.error?.message ?? result.signal ?? `exit ${result.status}`})\n${result.stdout}${result.stderr}`,
    );
  }
  return result.stdout;
}

/** The first program of the README: its code, file and command. */
function firstProgram() {
  const [, code, file, command] =
    /^```ts\n(\/\/ ([\w-]+\.mts): ([^\n]*)\n.*?)^```$/msu.exec(readFileSync(join(root, "README.md"), "utf8")) ?? [];
  if (code === undefined) throw new Error("Expected a ```ts block with a file name and a command in README.md");
  return { code, file, command };
}

/**
 * Follows the README from an empty directory to a trained policy and its report, every command as printed, with the tarball as `whetstone`.
 */
function followReadme(npm, node, tarball) {
  const cwd = join(work, `readme-npm-${npm}-node-${node}`);
  mkdirSync(cwd);
  const [, init, install] =
    /^mkdir first-run && cd first-run && (npm init -y)\n(.*npm install.*)$/mu.exec(readFileSync(join(root, "README.md"), "utf8")) ?? [];
  if (install === undefined) throw new Error("Expected the commands of a first project in README.md");
  const { code, file, command } = firstProgram();
  writeFileSync(join(cwd, file), code);
  // `npx` puts the asked versions of node and npm first in the path of the script; its own settings must not reach the `npx` inside.
  const versions = ["-p", `npm@${npm}`, ...(node === OWN_NODE ? [] : ["-p", `node@${node}`])];
  const script = [
    "unset npm_config_package npm_config_call",
    init,
    install.replace(" whetstone ", ` ${tarball} `),
    "node --version",
    command,
  ].join(" && ");
  const printed = run(`the README with npm ${npm} and Node ${node}`, "npx", ["--yes", ...versions, "-c", script], { cwd });
  if (!printed.includes(`v${node}.`)) throw new Error(`Expected Node ${node}, got:\n${printed}`);
  if (!/^completed at checkpoint 10$/mu.test(printed)) throw new Error(`Expected a completed run, got:\n${printed}`);
  const { size } = statSync(join(cwd, "runs/backwards/report.html"));
  if (size < 50_000) throw new Error(`Expected a report, got ${size} bytes`);
  rmSync(cwd, { recursive: true, force: true });
  console.log(`npm ${npm}, Node ${node}: the README leads from an empty directory to a trained policy and its report`);
}

const work = mkdtempSync(join(tmpdir(), "whetstone-pack-"));
try {
  run("npm pack", "npm", ["pack", "--silent", "--pack-destination", work], { cwd: root });
  const tarball = join(work, `whetstone-${version}.tgz`);
  for (const npm of NPM_VERSIONS) {
    const cwd = join(work, `npm-${npm}`);
    mkdirSync(cwd);
    writeFileSync(join(cwd, "package.json"), JSON.stringify({ name: "dependant", private: true, type: "module" }));
    const tools = ["typescript", "@types/node", "tsx"].map((name) => `${name}@${{ ...dependencies, ...devDependencies }[name]}`);
    const options = ["--ignore-scripts", "--no-audit", "--no-fund"];
    run(`npm ${npm} install`, "npx", ["--yes", `npm@${npm}`, "install", ...options, tarball, ...tools], { cwd });

    writeFileSync(join(cwd, "imports.mjs"), IMPORTS);
    const printed = run("importing the package", "node", ["imports.mjs"], { cwd });
    if (!printed.includes(`thin ${version}`)) throw new Error(`Expected version ${version}, got: ${printed}`);

    writeFileSync(join(cwd, "types.ts"), TYPES);
    const strict = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2023", "--module", "nodenext", "--types", "node"];
    run("type-checking a dependant", "npx", ["tsc", ...strict, "types.ts"], { cwd });

    const help = run("whetstone --help", "npx", ["whetstone", "--help"], { cwd });
    if (!help.includes("serve")) throw new Error(`Expected \`whetstone --help\` to list \`serve\`, got: ${help}`);

    console.log(`npm ${npm}: installs, imports, types and command line work`);
    for (const node of NODE_VERSIONS) followReadme(npm, node, tarball);
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}

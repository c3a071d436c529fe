/** Agents that are programs: a process per rollout, with the variables from which agents read their endpoint. */
import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CreatedSessionInfo, SessionScore } from "../client/index.ts";
import { ArgumentError, AgentProcessError } from "../../base/errors.ts";
import { abortable } from "../../base/util/abort.ts";
import { deferred } from "../../base/util/deferred.ts";
import { createRedactor } from "../../base/util/redact.ts";
import { isRecord, messageOf, parseJson } from "../../base/util/values.ts";

/** Program of an agent and how it is scored. */
export interface AgentProcess {
  /** Program and its arguments; no shell is involved. */
  readonly command: readonly string[];
  /** Variables added to the environment of this process and the variables of the session; undefined removes a variable. @default none */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** Directory that the program starts in. @default the working directory of this process */
  readonly cwd?: string | undefined;
  /** Text for standard input, which is closed after it. @default none */
  readonly input?: string | undefined;
  /**
   * Source of the reward: `"exit-code"`, 1 for exit code 0 and 0 for any other; `"file"`, the file that the variable
   * `WHETSTONE_REWARD_FILE` names, a number or a JSON object `{"reward": 1, "metrics": {…}}`; `"agent"`, the reward that the agent posts to
   * the session; or a function of the ended process.
   *
   * @default "exit-code"
   */
  readonly reward?:
    | "exit-code"
    | "file"
    | "agent"
    | ((ended: EndedProcess) => SessionScore | number | Promise<SessionScore | number>)
    | undefined;
  /** Max characters kept of each output, from its end. @default 65,536 */
  readonly maxOutput?: number | undefined;
}

/** Process that has ended by itself. */
export interface EndedProcess {
  /** Exit code; null if a signal ended the process. */
  readonly exitCode: number | null;
  /** Signal that ended the process; null for none. */
  readonly signal: NodeJS.Signals | null;
  /** End of standard output, without keys. */
  readonly stdout: string;
  /** End of standard error, without keys. */
  readonly stderr: string;
}

/** Variable of this process that an agent does not inherit: it samples with the key of its session. */
const WITHHELD_VARIABLE = "WHETSTONE_API_KEY";
/** Names of variables with secret values, which are redacted in the outputs. */
const SECRET_VARIABLE = /(?:KEY|TOKEN|SECRET|PASSWORD)$/u;
/** Default of `maxOutput`, in characters. */
const DEFAULT_MAX_OUTPUT = 65_536;
/** Milliseconds between SIGTERM and SIGKILL for a process tree. */
const KILL_AFTER_MS = 2000;
/** Max milliseconds between the end of a program and the end of its outputs. */
const OUTPUT_GRACE_MS = 2000;

/** Returns the variables with which clients of OpenAI and Anthropic, and the coding agents on them, sample a session. */
export function sessionVariables({ key, urls, model }: Pick<CreatedSessionInfo, "key" | "urls" | "model">): Record<string, string> {
  return {
    OPENAI_BASE_URL: urls.openai,
    OPENAI_API_BASE: urls.openai,
    OPENAI_API_KEY: key,
    CODEX_API_KEY: key,
    OPENAI_MODEL: model,
    ANTHROPIC_BASE_URL: urls.anthropic,
    ANTHROPIC_API_KEY: key,
    ANTHROPIC_AUTH_TOKEN: key,
    ANTHROPIC_MODEL: model,
    WHETSTONE_SESSION_URL: urls.session,
    WHETSTONE_SESSION_KEY: key,
  };
}

/** Receiver of the outputs of a process. */
type Relay = (name: "stdout" | "stderr", text: string) => void;

/** Result of {@link runAgentProcess}. */
export interface AgentResult {
  readonly ended: EndedProcess;
  /** Score; undefined if the agent posts it. */
  readonly score: SessionScore | undefined;
}

/**
 * Runs an agent on a session until it ends. An abort ends the whole process tree.
 *
 * @param relay - Receives the outputs as they are written, also keys in them. @default not called
 * @throws AgentProcessError `E_AGENT_PROCESS` if the program does not start, or its reward cannot be read.
 */
export async function runAgentProcess(
  agent: AgentProcess,
  session: Pick<CreatedSessionInfo, "key" | "urls" | "model">,
  { signal, relay }: { readonly signal: AbortSignal; readonly relay?: Relay | undefined },
): Promise<AgentResult> {
  const { command, reward = "exit-code", maxOutput = DEFAULT_MAX_OUTPUT } = agent;
  const [program, ...parameters] = command;
  if (program === undefined) throw new ArgumentError("Expected `command` to name a program, got an empty list", { param: "command" });
  const scratch = await mkdtemp(join(tmpdir(), "whetstone-agent-"));
  const rewardFile = join(scratch, "reward.json");
  const { [WITHHELD_VARIABLE]: _, ...inherited } = process.env;
  const env = { ...inherited, ...sessionVariables(session), WHETSTONE_REWARD_FILE: rewardFile, ...agent.env };
  const secrets = Object.entries(env).flatMap(([name, value]) => (SECRET_VARIABLE.test(name) ? [value] : []));
  const redact = createRedactor(secrets);
  try {
    signal.throwIfAborted();
    // A process group of its own, so that the programs that the agent starts end with it.
    const child = spawn(program, parameters, { cwd: agent.cwd, env, detached: process.platform !== "win32", stdio: "pipe" });
    // Twice the returned length, so that a key that is cut at the start of a kept text is outside of the returned text.
    const outputs = collectOutputs(child, 2 * maxOutput, relay);
    // A program that ends without reading its input closes the pipe.
    child.stdin.on("error", () => {}).end(agent.input ?? "");
    const [exitCode, endSignal] = await waitForEnd(child, program, signal);
    const lastOutput = (text: string) => redact(text).slice(-maxOutput);
    const ended = { exitCode, signal: endSignal, stdout: lastOutput(outputs.stdout), stderr: lastOutput(outputs.stderr) };
    return { ended, score: await scoreOf(reward, ended, rewardFile) };
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Returns an object that has the last `length` characters of both outputs of a process at any time. */
function collectOutputs(child: ChildProcessWithoutNullStreams, length: number, relay: Relay | undefined) {
  const outputs = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      outputs[name] = (outputs[name] + text).slice(-length);
      relay?.(name, text);
    });
  }
  return outputs;
}

/**
 * Waits for the end of a process and of its outputs, then ends the processes that it left running, which may hold the outputs open: they
 * have {@link OUTPUT_GRACE_MS} to write the rest. An abort ends all of them early.
 *
 * @returns Exit code and signal of the process; one of them is null.
 */
async function waitForEnd(
  child: ChildProcessWithoutNullStreams,
  program: string,
  signal: AbortSignal,
): Promise<[number | null, NodeJS.Signals | null]> {
  let killTimer: NodeJS.Timeout | undefined;
  let outputTimer: NodeJS.Timeout | undefined;
  const stop = () => {
    endTree(child, "SIGTERM");
    killTimer = setTimeout(() => endTree(child, "SIGKILL"), KILL_AFTER_MS);
  };
  signal.addEventListener("abort", stop, { once: true });
  const outputsEnd = deferred<void>();
  child.once("close", () => outputsEnd.resolve());
  try {
    const ended = (await once(child, "exit")) as [number | null, NodeJS.Signals | null];
    signal.throwIfAborted();
    outputTimer = setTimeout(() => outputsEnd.resolve(), OUTPUT_GRACE_MS);
    await abortable(outputsEnd.promise, signal);
    return ended;
  } catch (cause) {
    signal.throwIfAborted();
    const message = `The agent's program "${program}" did not start: ${messageOf(cause)}. Check \`command\` and \`cwd\``;
    throw new AgentProcessError(message, { cause, param: "command" });
  } finally {
    signal.removeEventListener("abort", stop);
    clearTimeout(killTimer);
    clearTimeout(outputTimer);
    endTree(child, "SIGKILL");
    // A process outside of the tree would keep the pipes, and with them this process, open.
    child.stdout.destroy();
    child.stderr.destroy();
  }
}

/** Sends a signal to a process and all processes that it started. */
function endTree(child: ChildProcess, name: "SIGTERM" | "SIGKILL"): void {
  if (child.pid === undefined) return;
  if (process.platform === "win32") {
    if (child.exitCode === null) spawn("taskkill", ["/pid", String(child.pid), "/t", "/f"], { stdio: "ignore" });
    return;
  }
  try {
    // A negative id addresses the process group.
    process.kill(-child.pid, name);
  } catch {
    // The group has ended.
  }
}

/** Returns the score of an ended process from the source that `reward` names; undefined if the agent posts the score itself. */
async function scoreOf(reward: NonNullable<AgentProcess["reward"]>, ended: EndedProcess, file: string): Promise<SessionScore | undefined> {
  if (reward === "agent") return undefined;
  if (reward === "exit-code") return { reward: ended.exitCode === 0 ? 1 : 0 };
  if (reward === "file") return readScore(file, ended);
  const score = await reward(ended);
  return typeof score === "number" ? { reward: score } : score;
}

/** Reads the score that the agent wrote to `file`. @throws AgentProcessError `E_AGENT_PROCESS` if there is none. */
async function readScore(file: string, ended: EndedProcess): Promise<SessionScore> {
  const scoreError = (found: string) =>
    new AgentProcessError(
      `Expected the agent to write a number or {"reward": …} to the file in WHETSTONE_REWARD_FILE, ${found}. The agent ended with ${ended.signal ?? `exit code ${ended.exitCode}`}; its last output: ${ended.stderr.slice(-500) || ended.stdout.slice(-500) || "none"}`,
      { param: "reward" },
    );
  const text = await readFile(file, "utf8").catch(() => null);
  if (text === null) throw scoreError("it wrote none");
  const score = parseJson(text);
  if (typeof score === "number") return { reward: score };
  if (isRecord(score) && typeof score["reward"] === "number") return score;
  throw scoreError(`got ${JSON.stringify(text.slice(0, 200))}`);
}

/** Returns the changes that record a process in its trajectory: the ends of both outputs as logs, and the exit code as a metric. */
export function agentLogs({ exitCode, stdout, stderr }: EndedProcess): { logs: string[]; metrics: Record<string, number> } {
  const logs = Object.entries({ stdout, stderr }).flatMap(([name, text]) => (text === "" ? [] : [`${name}:\n${text}`]));
  return { logs, metrics: exitCode === null ? {} : { exit_code: exitCode } };
}

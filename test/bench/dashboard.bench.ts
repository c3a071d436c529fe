/**
 * The dashboard: opening a large run, the delay of live events, and the cost of an open dashboard during a training run.
 *
 *   npm run bench -- dashboard [--steps 300] [--groups 21] [--size 16] [--rounds 3] [--train-steps 40]
 *
 * The first part starts a service and sends the requests of the page in its order, until the page has the data of its first view. The second
 * writes events to a run directory and measures the time from the recorded time of the event to its arrival in another process's stream. The
 * third trains twice per round, with and without a client that follows the run and reads the groups of each new step.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { EventSourceParserStream, type EventSourceMessage } from "eventsource-parser/stream";
import type { RunMetrics, RunSummary, StreamMessages } from "../../src/lab/dashboard/api.ts";
import { createScriptedEngine } from "../../src/testing/index.ts";
import { startService } from "../../src/service/index.ts";
import { writeLargeRun, type LargeRunOptions } from "../support/large-run.ts";
import { median, printTable, quantile, whole } from "./support.ts";

/** Input of dashboard-train.ts. */
export interface DashboardTraining {
  readonly steps: number;
}

/** Output of dashboard-train.ts. */
export interface DashboardTrainingResult {
  readonly seconds: number;
  readonly cpuSeconds: number;
}

interface Address {
  readonly url: string;
  readonly apiKey: string;
}

async function get<T>({ url, apiKey }: Address, path: string): Promise<T> {
  const answer = await fetch(url + path, { headers: { authorization: `Bearer ${apiKey}` } });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return (answer.headers.get("content-type")?.includes("json") ? answer.json() : answer.text()) as Promise<T>;
}

/** Messages of an event stream until the signal aborts. */
async function* messages({ url, apiKey }: Address, path: string, signal: AbortSignal): AsyncGenerator<EventSourceMessage> {
  const answer = await fetch(url + path, { headers: { authorization: `Bearer ${apiKey}` }, signal });
  const stream = answer.body!.pipeThrough(new TextDecoderStream()).pipeThrough(new EventSourceParserStream());
  for await (const message of stream as unknown as AsyncIterable<EventSourceMessage>) yield message;
}

/** Milliseconds of one request. */
interface Cost {
  readonly ms: number;
  /** CPU time of the process with the service and the client. */
  readonly cpuMs: number;
}

/** Costs of each request of the page, on a service that has read nothing yet. */
async function openRun(runs: string): Promise<Map<string, Cost>> {
  const service = await startService({ engine: createScriptedEngine(), dataDir: join(runs, "..", "data"), runs: [runs] });
  const times = new Map<string, Cost>();
  const timed = async <T>(name: string, path: string): Promise<T> => {
    const [startMs, cpu] = [performance.now(), process.cpuUsage()];
    const body = await get<T>(service, path);
    const { user, system } = process.cpuUsage(cpu);
    times.set(name, { ms: performance.now() - startMs, cpuMs: (user + system) / 1000 });
    return body;
  };
  try {
    // From source, the first request bundles the script; the package contains the bundle.
    await get(service, "/ui/page.js");
    await timed("page", "/ui/");
    await timed("script", "/ui/page.js");
    await timed("style sheet", "/ui/page.css");
    const [run] = await timed<RunSummary[]>("list of runs", "/ui/api/runs");
    await timed("metrics", `/ui/api/metrics?run=${run!.id}`);
    await timed("run", `/ui/api/runs/${run!.id}`);
    await timed("steps", `/ui/api/runs/${run!.id}/steps`);
    const last = `/ui/api/runs/${run!.id}/steps/train/${run!.steps - 1}`;
    await timed("groups of a step", `${last}/groups?limit=100`);
    await timed("trajectories of a step", `${last}/trajectories?limit=100`);
    await timed("trajectory", `${last}/trajectories/1/0`);
  } finally {
    await service.close({ graceMs: 0 });
  }
  return times;
}

/** Milliseconds from the recorded time of each `step-end` to its arrival. */
async function liveDelays(runs: string, steps: number): Promise<number[]> {
  const service = await startService({ engine: createScriptedEngine(), dataDir: join(runs, "..", "data"), runs: [runs] });
  const leave = new AbortController();
  const delays: number[] = [];
  try {
    const path = join(runs, "live");
    const small: LargeRunOptions = { steps: 1, groups: 2, size: 4, isInterrupted: true };
    await writeLargeRun(path, small);
    const run = (await get<RunSummary[]>(service, "/ui/api/runs")).find(({ name }) => name === "live")!;
    const [{ position }] = (await get<RunMetrics[]>(service, `/ui/api/metrics?run=${run.id}`)) as [RunMetrics];
    const reading = (async () => {
      for await (const { event, data } of messages(service, `/ui/api/events?run=${run.id}@${position}`, leave.signal)) {
        if (event !== "event") continue;
        const { time, type } = (JSON.parse(data) as StreamMessages["event"]).event;
        if (type === "step-end") delays.push(Date.now() - Date.parse(time));
      }
    })().catch((error: unknown) => {
      if (!leave.signal.aborted) throw error;
    });
    // Steps of different lengths, so that the events do not fall on the polls.
    await writeLargeRun(path, { ...small, steps, onStep: (step) => new Promise((next) => setTimeout(next, 130 + ((step * 61) % 200))) });
    await new Promise((next) => setTimeout(next, 2000));
    leave.abort();
    await reading;
  } finally {
    leave.abort();
    await service.close({ graceMs: 0 });
  }
  return delays.slice(-steps);
}

/** Trains in another process; `isOpen`: while a client follows the run. */
async function train(steps: number, isOpen: boolean): Promise<DashboardTrainingResult> {
  const script = fileURLToPath(new URL("dashboard-train.ts", import.meta.url));
  const args = ["--conditions=whetstone/source", "--import", "tsx", script, JSON.stringify({ steps } satisfies DashboardTraining)];
  const child = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  const lines = child.stdout.setEncoding("utf8")[Symbol.asyncIterator]() as AsyncIterator<string>;
  const exited = once(child, "exit");
  const address = JSON.parse((await lines.next()).value as string) as Address;
  const leave = new AbortController();
  const watching = isOpen ? watch(address, leave.signal) : Promise.resolve();
  child.stdin.write("start\n");
  const result = JSON.parse((await lines.next()).value as string) as DashboardTrainingResult;
  leave.abort();
  await watching;
  await exited;
  return result;
}

/** Sends the requests of an open page: follows the list, then the run, and reads the groups of each new step. */
async function watch(address: Address, signal: AbortSignal): Promise<void> {
  try {
    let id = "";
    for await (const { event, data } of messages(address, "/ui/api/events", signal)) {
      const found =
        event === "runs" ? (JSON.parse(data) as RunSummary[])[0] : event === "run" ? (JSON.parse(data) as RunSummary) : undefined;
      if (found === undefined) continue;
      id = found.id;
      break;
    }
    for await (const { event, data } of messages(address, `/ui/api/events?run=${id}@0.0`, signal)) {
      if (event !== "event") continue;
      const recorded = (JSON.parse(data) as StreamMessages["event"]).event;
      if (recorded.type === "rollouts-end") await get(address, `/ui/api/runs/${id}/steps/train/${Number(recorded["step"])}/groups`);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      steps: { type: "string", default: "300" },
      groups: { type: "string", default: "21" },
      size: { type: "string", default: "16" },
      rounds: { type: "string", default: "3" },
      "train-steps": { type: "string", default: "40" },
    },
  });
  const [steps, groups, size] = [whole("steps", values.steps), whole("groups", values.groups), whole("size", values.size)];
  const [rounds, trainSteps] = [whole("rounds", values.rounds), whole("train-steps", values["train-steps"])];
  const root = await mkdtemp(join(tmpdir(), "whetstone-dashboard-bench-"));
  try {
    await writeLargeRun(join(root, "runs", "large"), { steps, groups, size });
    const opened: Map<string, Cost>[] = [];
    for (let round = 0; round < rounds; round++) opened.push(await openRun(join(root, "runs")));
    const row = (name: string, of: (costs: Map<string, Cost>) => Cost[]) => {
      const total = (key: keyof Cost) => median(opened.map((costs) => of(costs).reduce((sum, cost) => sum + cost[key], 0)));
      return [name, total("ms").toFixed(0), total("cpuMs").toFixed(0)];
    };
    const rows = [...opened[0]!.keys()].map((name) => row(name, (costs) => [costs.get(name)!]));
    const title = `opening a run of ${steps} steps and ${steps * groups * size} trajectories`;
    printTable([title, "ms", "CPU ms"], [...rows, row("all", (costs) => [...costs.values()])]);
    await rm(join(root, "runs", "large"), { recursive: true });
    const delays = await liveDelays(join(root, "runs"), 100);
    printTable(
      ["live events", "median ms", "95 % ms", "max ms"],
      [[String(delays.length), ...[median(delays), quantile(delays, 0.95), Math.max(...delays)].map((ms) => ms.toFixed(0))]],
    );
  } finally {
    await rm(root, { recursive: true, force: true });
  }
  const [closed, open]: [DashboardTrainingResult[], DashboardTrainingResult[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    closed.push(await train(trainSteps, false));
    open.push(await train(trainSteps, true));
  }
  const of = (results: readonly DashboardTrainingResult[], key: keyof DashboardTrainingResult) => median(results.map((each) => each[key]));
  const row = (key: keyof DashboardTrainingResult) => {
    const [without, with_] = [of(closed, key), of(open, key)];
    return [without.toFixed(2), with_.toFixed(2), `${((with_ / without - 1) * 100).toFixed(1)} %`];
  };
  printTable(
    [`${trainSteps} training steps`, "without dashboard", "with dashboard", "difference"],
    [
      ["seconds", ...row("seconds")],
      ["CPU seconds", ...row("cpuSeconds")],
    ],
  );
}

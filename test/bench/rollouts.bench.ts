/**
 * Rollouts on workers: how many small rollouts one service leases and records per second, with its memory; and the rate of one worker
 * process against several, with an environment that waits; then the same workers while one after the other is killed.
 *
 *   npm run bench -- rollouts [--rollouts 100000] [--group-size 8] [--clients 8] [--batch 50] [--bytes 2000]
 *     [--workers 4] [--concurrency 8] [--wait-ms 300] [--seconds 20] [--kill-every 10]
 *
 * `--rollouts 0` leaves out the first part, `--workers 0` the second and the third, `--kill-every 0` the third.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { connect, type Service } from "whetstone";
import { contentHash } from "whetstone/environment";
import { printTable, short, whole } from "./support.ts";

const ROOT = join(import.meta.dirname, "../..");
const SOURCE = ["--conditions=whetstone/source", "--import", "tsx"];
const ENVIRONMENT = join(import.meta.dirname, "rollouts-environment.ts");
const HASH = "0".repeat(64);
/** Groups of one request. */
const PAGE = 500;

/** Process of a service with an engine that answers at once: `rollouts-service.ts <data directory>`. */
interface Served {
  readonly url: string;
  readonly apiKey: string;
  readonly child: ChildProcess;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      rollouts: { type: "string", default: "100000" },
      "group-size": { type: "string", default: "8" },
      clients: { type: "string", default: "8" },
      batch: { type: "string", default: "50" },
      bytes: { type: "string", default: "2000" },
      workers: { type: "string", default: "4" },
      concurrency: { type: "string", default: "8" },
      "wait-ms": { type: "string", default: "300" },
      seconds: { type: "string", default: "20" },
      "kill-every": { type: "string", default: "10" },
    },
  });
  const rollouts = whole("rollouts", values.rollouts, 0);
  const workers = whole("workers", values.workers, 0);
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  const served = await startService(join(directory, "data"));
  const service = await connect({ baseUrl: served.url, apiKey: served.apiKey });
  try {
    if (rollouts > 0) {
      const groupSize = whole("group-size", values["group-size"]);
      await measureQueue(service, served, {
        groupSize,
        groups: Math.ceil(rollouts / groupSize),
        clients: whole("clients", values.clients),
        batch: whole("batch", values.batch),
        bytes: whole("bytes", values.bytes),
      });
    }
    if (workers > 0) {
      const seconds = whole("seconds", values.seconds);
      const settings = { concurrency: whole("concurrency", values.concurrency), waitMs: whole("wait-ms", values["wait-ms"], 0), seconds };
      const rates: [number, number][] = [];
      for (const count of [1, workers]) rates.push([count, await workerRate(service, served, count, settings)]);
      const [[, single]] = rates as [[number, number]];
      printTable(
        ["worker processes", "rollouts/s", "against one"],
        rates.map(([count, rate]) => [String(count), short(rate), (rate / single).toFixed(2)]),
      );
      const killSeconds = whole("kill-every", values["kill-every"], 0);
      if (killSeconds > 0) await measureKills(service, served, workers, { ...settings, killSeconds });
    }
  } finally {
    await service.close();
    served.child.kill("SIGKILL");
    await rm(directory, { recursive: true, force: true });
  }
}

async function startService(dataDir: string): Promise<Served> {
  const child = fork(fileURLToPath(new URL("rollouts-service.ts", import.meta.url)), [dataDir], { execArgv: SOURCE });
  const [address] = (await once(child, "message")) as [{ url: string; apiKey: string }];
  return { ...address, child };
}

interface QueueSettings {
  readonly groups: number;
  readonly groupSize: number;
  /** Clients that lease and deliver at the same time. */
  readonly clients: number;
  /** Tasks of a lease. */
  readonly batch: number;
  /** Bytes of an outcome, about. */
  readonly bytes: number;
}

/** Adds, leases, delivers and deletes rollouts; prints the rates and the memory of the service. */
async function measureQueue(service: Service, served: Served, { groups, groupSize, clients, batch, bytes }: QueueSettings): Promise<void> {
  const plan = await service.rolloutPlans.create({
    environment: "bench",
    environmentHash: HASH,
    policy: "whetstone-tiny",
    groupSize,
    seed: 0,
  });
  const total = groups * groupSize;
  const rows: string[][] = [];
  const memory: number[] = [];
  const sampler = setInterval(() => void residentBytes(served.child).then((each) => memory.push(each)), 500);
  const measure = async (label: string, count: number, work: () => Promise<unknown>) => {
    const startedMs = performance.now();
    await work();
    const seconds = (performance.now() - startedMs) / 1000;
    rows.push([label, short(count), seconds.toFixed(1), short(count / seconds), short((await residentBytes(served.child)) / 2 ** 20)]);
  };
  await measure("add tasks", total, async () => {
    for (let from = 0; from < groups; from += PAGE) {
      const page = Array.from({ length: Math.min(PAGE, groups - from) }, (_, index) => ({
        group: from + index,
        scenario: { id: `scenario ${from + index}` },
      }));
      await service.rolloutPlans.addGroups(plan.id, page);
    }
  });
  const logs = ["x".repeat(bytes)];
  const client = async (index: number) => {
    for (;;) {
      const { tasks } = await service.rolloutPlans.lease({
        worker: `client ${index}`,
        environments: [{ name: "bench", hash: HASH }],
        max: batch,
      });
      if (tasks.length === 0) return;
      await Promise.all(
        tasks.map((task) =>
          service.rolloutPlans.deliver(task, {
            trajectory: { ...EMPTY, logs, metadata: { rollout: `${task.group} ${task.index}` } },
          }),
        ),
      );
    }
  };
  await measure("lease and deliver", total, () => Promise.all(Array.from({ length: clients }, (_, index) => client(index))));
  const { finished } = await service.rolloutPlans.get(plan.id);
  if (finished !== total) throw new Error(`Expected ${total} finished rollouts, got ${finished}`);
  await measure("list finished tasks", total, async () => {
    for (let after = 0; after < total; after += 1000) await service.rolloutPlans.finished(plan.id, { after, limit: 1000 });
  });
  await measure("delete the plan", total, () => service.rolloutPlans.delete(plan.id));
  clearInterval(sampler);
  printTable(["work", "rollouts", "seconds", "rollouts/s", "resident MiB after"], rows);
  console.log(`Peak of the service's resident memory: ${short(Math.max(...memory) / 2 ** 20)} MiB\n`);
}

const EMPTY = { messages_and_choices: [], additional_histories: [], reward: 1, metrics: {}, metadata: {}, logs: [] };

/** Returns the resident memory of a process, on Linux; NaN elsewhere. */
async function residentBytes({ pid }: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
  return Number(/^VmRSS:\s+(\d+) kB$/mu.exec(status)?.[1] ?? NaN) * 1024;
}

/** Settings of worker processes. */
interface WorkerSettings {
  readonly concurrency: number;
  readonly waitMs: number;
  readonly seconds: number;
}

/** Creates a plan that keeps `count` workers busy for `seconds`; returns its id and the number of its rollouts. */
async function addPlan({ rolloutPlans }: Service, count: number, { concurrency, waitMs, seconds }: WorkerSettings) {
  const environmentHash = await contentHash({ name: "waits", source: ENVIRONMENT });
  const settings = { environment: "waits", environmentHash, policy: "whetstone-tiny", groupSize: 8, seed: 0, maxLeases: 1000 };
  const { id } = await rolloutPlans.create(settings);
  const groups = Math.ceil(((1000 / Math.max(waitMs, 1)) * concurrency * count * seconds) / 8);
  for (let from = 0; from < groups; from += PAGE) {
    const page = Array.from({ length: Math.min(PAGE, groups - from) }, (_, index) => ({ group: from + index, scenario: { waitMs } }));
    await rolloutPlans.addGroups(id, page);
  }
  return { id, total: groups * 8 };
}

function startWorker({ url, apiKey }: Served, name: string, concurrency: number): ChildProcess {
  const flags = ["--service", url, "--concurrency", String(concurrency), "--name", name, "--lease", "5"];
  return spawn(process.execPath, [...SOURCE, "src/cli/main.ts", "worker", ENVIRONMENT, ...flags], {
    cwd: ROOT,
    stdio: "ignore",
    env: { ...process.env, WHETSTONE_API_KEY: apiKey },
  });
}

/** Returns the rollouts per second of `count` worker processes, after all of them have delivered one. */
async function workerRate(service: Service, served: Served, count: number, settings: WorkerSettings): Promise<number> {
  const { rolloutPlans } = service;
  const { id } = await addPlan(service, count, { ...settings, seconds: settings.seconds + 10 });
  const workers = Array.from({ length: count }, (_, index) => startWorker(served, `worker ${index}`, settings.concurrency));
  try {
    const started = new Set<string | null>();
    for (let after = 0; started.size < count;) {
      const { finished } = await rolloutPlans.finished(id, { after, waitSeconds: 5, limit: 1000 });
      for (const { worker } of finished) started.add(worker);
      after = finished.at(-1)?.finished ?? after;
    }
    const [before, startedMs] = [(await rolloutPlans.get(id)).finished, performance.now()];
    await sleep(settings.seconds * 1000);
    return ((await rolloutPlans.get(id)).finished - before) / ((performance.now() - startedMs) / 1000);
  } finally {
    for (const worker of workers) worker.kill("SIGKILL");
    await rolloutPlans.delete(id);
  }
}

/** Kills and replaces a worker every `killSeconds` until a plan is finished; prints the rate. @throws Error if a rollout is lost or doubled. */
async function measureKills(
  service: Service,
  served: Served,
  count: number,
  settings: WorkerSettings & { readonly killSeconds: number },
): Promise<void> {
  const { rolloutPlans } = service;
  const { id, total } = await addPlan(service, count, settings);
  const start = (index: number) => startWorker(served, `worker ${index}`, settings.concurrency);
  const workers = Array.from({ length: count }, (_, index) => start(index));
  const startedMs = performance.now();
  let kills = 0;
  const killer = setInterval(() => {
    workers[kills % count]?.kill("SIGKILL");
    workers[kills % count] = start(count + kills++);
  }, settings.killSeconds * 1000);
  const played = new Set<string>();
  let repeated = 0;
  try {
    for (let after = 0; after < total;) {
      const { finished } = await rolloutPlans.finished(id, { after, waitSeconds: 5, limit: 1000 });
      for (const { group, index, status, leases } of finished) {
        if (status !== "done") throw new Error(`Expected rollout ${index} of group ${group} to be done, got ${status}`);
        played.add(`${group} ${index}`);
        if (leases > 1) repeated++;
      }
      after = finished.at(-1)?.finished ?? after;
    }
  } finally {
    clearInterval(killer);
    for (const worker of workers) worker.kill("SIGKILL");
  }
  const seconds = (performance.now() - startedMs) / 1000;
  const { finished } = await rolloutPlans.get(id);
  if (played.size !== total || finished !== total)
    throw new Error(`Expected ${total} rollouts, each once, got ${played.size} of ${finished}`);
  printTable(
    ["worker processes", "kills", "rollouts", "leased again", "rollouts/s"],
    [[String(count), String(kills), short(total), String(repeated), short(total / seconds)]],
  );
}

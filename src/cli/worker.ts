/** Command `whetstone worker`: plays rollouts of training runs in a process of its own, and prints its progress. */
import { Command } from "commander";
import { runWorker, type WorkerEvent, type WorkerResult } from "../library/environment/index.ts";
import { describeException } from "../library/rollout/failure.ts";
import { logLine, printLine } from "../base/util/output.ts";
import { integer, nonNegative } from "./arguments.ts";
import { addBroker, brokerOf, type BrokerFlags } from "./broker.ts";
import { addDataDir, withService } from "./connected.ts";
import { addEnvironment, type EnvironmentOptions, loadEnvironments } from "./environment-file.ts";
import { type OutputOptions, plural } from "./output.ts";

/** Options of the command. */
interface WorkerCommandOptions extends EnvironmentOptions, OutputOptions, BrokerFlags {
  readonly service?: string;
  readonly dataDir?: string;
  readonly concurrency: number;
  readonly name?: string;
  /** Id of a plan. */
  readonly plan?: string;
  /** Seconds. */
  readonly lease: number;
  /** Seconds. */
  readonly idleExit?: number;
  /** Seconds. */
  readonly grace: number;
}

/** Milliseconds between two lines about the progress. */
const PROGRESS_MS = 10_000;

/** Creates the command `whetstone worker <file>`, which plays the rollouts of training runs. */
export function workerCommand(): Command {
  // The order of the options is their order in the help.
  const command = addDataDir(addEnvironment(new Command("worker")))
    .description("play rollouts of `trainRl` with `workers`, or of `whetstone train --workers`, on the environments that a file exports")
    .option(
      "--service <url>",
      "address of the service; its key is WHETSTONE_API_KEY (default: WHETSTONE_BASE_URL, or the embedded service)",
    )
    .option("--concurrency <number>", "max concurrent rollouts", integer(1), 8);
  return addBroker(command)
    .option("--name <text>", "name of the worker, for people (default: host name and process id)")
    .option("--plan <id>", "play only this plan; not with --redis (default: all plans for the environments)")
    .option("--lease <seconds>", "duration of a lease; after a crash, others get the rollouts when it ends", integer(3), 60)
    .option("--idle-exit <seconds>", "end after this time without rollouts (default: never)", nonNegative)
    .option("--grace <seconds>", "time that rollouts may take after a signal; others are released", nonNegative, 30)
    .action(playRollouts);
}

/** Runs the command. */
async function playRollouts(file: string, options: WorkerCommandOptions): Promise<void> {
  const { concurrency, name, plan, lease, idleExit, grace, json = false } = options;
  const environments = await loadEnvironments(file, options);
  const broker = await brokerOf(options);
  await withService(options, async ({ service, signal }) => {
    const progress = new Progress(service.baseUrl);
    const timer = json ? undefined : setInterval(() => progress.print(), PROGRESS_MS);
    try {
      const result = await runWorker({
        service,
        environments,
        concurrency,
        name,
        broker,
        planId: plan,
        leaseSeconds: lease,
        idleExitMs: idleExit === undefined ? undefined : idleExit * 1000,
        graceMs: grace * 1000,
        signal,
        onEvent: json ? (event) => printLine(JSON.stringify(event)) : (event) => progress.record(event),
      });
      printLine(json ? JSON.stringify({ type: "worker-end", ...result }) : summary(result));
    } finally {
      clearInterval(timer);
    }
  });
}

/** Returns the last line of a worker. Tasks are lost to other workers, or because their plan was cancelled or deleted. */
function summary({ reason, delivered, failed, lost, released }: WorkerResult): string {
  const losses = (lost > 0 ? `, ${lost} lost` : "") + (released > 0 ? `, ${released} released` : "");
  return `${reason} after ${plural(delivered, "rollout")}, ${failed} failed${losses}`;
}

/** Lines about the work of a worker: its start, and a line per period in which something happened. */
class Progress {
  readonly #url: string;
  #delivered = 0;
  #failed = 0;
  #rewardSum = 0;
  /** Latest failure or problem since the last line; null without one. */
  #problem: string | null = null;
  #hasChanged = false;

  constructor(url: string) {
    this.#url = url;
  }

  /** Adds an event to the counts. The start is printed at once. */
  record(event: WorkerEvent): void {
    switch (event.type) {
      case "worker-start":
        for (const { name, hash } of event.environments) logLine(`${event.worker} plays ${name} (${hash.slice(0, 12)}) from ${this.#url}`);
        return;
      case "rollout-deliver":
        this.#delivered++;
        // Null for a failed rollout, which does not count in the mean either.
        this.#rewardSum += event.reward ?? 0;
        if (event.exception !== null) {
          this.#failed++;
          this.#problem = describeException(event.exception);
        }
        break;
      case "rollout-lose":
        this.#problem = `lost rollout ${event.taskId}`;
        break;
      case "service-unavailable":
        this.#problem = event.message;
        break;
    }
    this.#hasChanged = true;
  }

  /** Prints the counts, if an event has changed them since the last line. */
  print(): void {
    if (!this.#hasChanged) return;
    const scored = this.#delivered - this.#failed;
    const reward = scored === 0 ? "" : `, mean reward ${(this.#rewardSum / scored).toFixed(4)}`;
    const problem = this.#problem === null ? "" : `; ${this.#problem}`;
    logLine(`${plural(this.#delivered, "rollout")}, ${this.#failed} failed${reward}${problem}`);
    this.#problem = null;
    this.#hasChanged = false;
  }
}

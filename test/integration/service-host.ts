/** A service with the embedded engine in a process of its own, to be killed: `service-host.ts <data directory> <port> <settings as JSON>`. */
import { fileURLToPath } from "node:url";
import { createOnnxEngine, type Engine } from "whetstone/engine";
import { startService } from "whetstone/service";

/** Settings of a test. */
export interface HostSettings {
  /** Optimizer steps from one commit to the next. @default 4 */
  readonly commitEverySteps?: number;
  /** Threads of the trainer. @default the engine's */
  readonly threads?: number;
  /**
   * Position at which training halts until the process is killed: after this number of optimizer steps (0: before
   * the first), or in the first pass of a policy loss. No later line of the job's code runs. @default nowhere
   */
  readonly haltAt?: number | "policy-pass";
  /** Address of a Postgres database that several processes share, each with leases of 1.5 s. @default SQLite */
  readonly database?: string;
}

/** The embedded engine, except that training halts. */
async function haltingEngine(threads: number | undefined, haltAt: number | "policy-pass"): Promise<Engine> {
  const shipped = fileURLToPath(new URL("../../models/whetstone-tiny", import.meta.url));
  const options = { baseModels: { "whetstone-tiny": shipped }, ...(threads === undefined ? {} : { trainerThreads: threads }) };
  const engine = await createOnnxEngine(options);
  const halt = (): Promise<never> => {
    process.stdout.write("halted\n");
    return new Promise(() => {});
  };
  let steps = 0;
  const changed: Partial<Engine> = {
    async optimStep(...given) {
      if (steps === haltAt) return halt();
      const result = await engine.optimStep(...given);
      steps++;
      return steps === haltAt ? halt() : result;
    },
    async forwardBackward(model, rows, loss, options) {
      const pass = engine.forwardBackward(model, rows, loss, options);
      return haltAt === "policy-pass" && loss.kind !== "cross-entropy" ? halt() : pass;
    },
  };
  return new Proxy(engine, {
    get(target, name) {
      const value: unknown = Reflect.get(changed, name) ?? Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

const [dataDir = "", port = "0", settings = "{}"] = process.argv.slice(2);
const { threads, haltAt, database, commitEverySteps = 4 } = JSON.parse(settings) as HostSettings;
// Commits are frequent, so that a kill lands before, in and after some of them.
const { url, apiKey } = await startService({
  dataDir,
  port: Number(port),
  limits: { commitEverySteps, jobLeaseMs: 1500 },
  ...(database === undefined ? {} : { database }),
  ...(haltAt === undefined ? { trainerThreads: threads } : { engine: await haltingEngine(threads, haltAt) }),
});
process.stdout.write(`${JSON.stringify({ url, apiKey })}\n`);

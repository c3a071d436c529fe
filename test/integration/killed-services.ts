/** Processes of one service, of which one after the other is killed and started again, and requests that survive this. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { type JobEvent, RL_JOBS, startProcess } from "./support.ts";
import { seededRandom } from "../support/seeded-random.ts";

type ServiceProcess = Awaited<ReturnType<typeof startProcess>>;

/** Max attempts of a request. */
const ATTEMPTS = 200;
const END = ["training_ended", "training_failed"];

/** Answer of {@link KilledServices.call}. */
interface KilledAnswer {
  readonly status: number;
  readonly text: string;
}

/** Processes of one service. */
export interface KilledServices {
  readonly services: readonly ServiceProcess[];
  /** Returns the next random number in [0, 1). */
  readonly random: () => number;
  /** Sends a request to any process, and again to any one if the connection fails or the answer is 503. */
  readonly call: (method: string, path: string, body?: object | string) => Promise<KilledAnswer>;
  /** The same for requests that must succeed; a creation has one idempotency key for all of its attempts. */
  readonly request: (method: string, path: string, body?: object) => Promise<any>;
  readonly put: (path: string, contents: string) => Promise<void>;
  readonly text: (path: string) => Promise<string>;
  readonly finishedEvents: (jobId: string) => Promise<JobEvent[]>;
  /** Kills a random process with SIGKILL, and starts another one in its place. */
  readonly killOne: () => Promise<void>;
}

/** Options of {@link startServices}. */
interface ServicesOptions {
  readonly dataDir: string;
  /** Postgres database of two processes; null starts one process on SQLite. */
  readonly database: string | null;
  readonly seed: number;
}

/** Starts the processes, which end with the test. */
export async function startServices({ dataDir, database, seed }: ServicesOptions): Promise<KilledServices> {
  const random = seededRandom(seed);
  const start = () => startProcess(dataDir, { threads: 1, ...(database === null ? {} : { database }) });
  const services = database === null ? [await start()] : [await start(), await start()];

  const call = async (method: string, path: string, body?: object | string, key?: string): Promise<KilledAnswer> => {
    let failure = "";
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      // Math.random, because requests run at the same time as the kills and must not change their moments.
      const { url, apiKey } = services[Math.floor(Math.random() * services.length)]!;
      const headers: Record<string, string> = { authorization: `Bearer ${apiKey}` };
      if (typeof body === "object") headers["content-type"] = "application/json";
      if (key !== undefined) headers["idempotency-key"] = key;
      try {
        const response = await fetch(url + path, {
          method,
          headers,
          ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
        });
        const text = await response.text();
        if (response.status !== 503) return { status: response.status, text };
        failure = text;
      } catch (error) {
        failure = String(error);
      }
      await sleep(50);
    }
    throw new Error(`No answer to ${method} ${path} after ${ATTEMPTS} attempts; the last one: ${failure}`);
  };
  const must = async (method: string, path: string, body?: object | string, key?: string): Promise<string> => {
    const { status, text } = await call(method, path, body, key);
    if (status !== 200) throw new Error(`Expected success from ${method} ${path}, got ${status}: ${text}`);
    return text;
  };
  const request: KilledServices["request"] = async (method, path, body) =>
    JSON.parse(await must(method, path, body, method === "POST" ? randomUUID() : undefined));
  return {
    services,
    random,
    call,
    request,
    text: (path) => must("GET", path),
    put: async (path, contents) => void (await must("PUT", path, contents)),
    async finishedEvents(jobId) {
      const events: JobEvent[] = [];
      while (!END.includes(events.at(-1)?.type ?? "")) {
        const after = events.at(-1) === undefined ? "" : `&after=${events.at(-1)?.id}`;
        events.push(...(await request("GET", `${RL_JOBS}/${jobId}/events?limit=100&wait=10${after}`)).data);
      }
      return events;
    },
    async killOne() {
      const index = Math.floor(random() * services.length);
      await services[index]!.kill();
      services[index] = await start();
    },
  };
}

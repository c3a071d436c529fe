/**
 * Effect of a training job on live streams: gaps between tokens at the client, and the delay of the serving thread's event
 * loop, without jobs and during SFT and RL jobs sent one after another.
 *
 *   npm run bench -- latency [--trainer-threads 1,2] [--niceness 0,10,19] [--streams 8] [--seconds 4] [--rounds 2]
 */
import { parseArgs } from "node:util";
import { JobFeeder } from "./latency-jobs.ts";
import { nextMessage, withHost } from "./latency-service.ts";
import { LiveStreams } from "./latency-streams.ts";
import { median, printTable, quantile, short, whole } from "./support.ts";

/** Settings of the host. */
export interface HostInput {
  readonly dataDir: string;
  readonly directory: string;
  /** Whether the directory has no weights, and random ones are made. */
  readonly isFresh: boolean;
  /** Directories of further base models, by id. @default none */
  readonly more?: Readonly<Record<string, string>> | undefined;
  readonly trainerThreads: number;
  readonly trainerNiceness: number;
}

/** The serving thread's event loop over one phase, in ms. */
export interface LoopDelay {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

/** Address of the service. */
export interface Address {
  readonly url: string;
  readonly apiKey: string;
}

const PHASES = ["idle", "sft", "rl"] as const;
type Phase = (typeof PHASES)[number];

interface PhaseResult {
  readonly gaps: number[];
  readonly loops: LoopDelay[];
  /** Per round: tokens of trained rows per second of wall time. */
  readonly trained: number[];
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      "trainer-threads": { type: "string", default: "2" },
      niceness: { type: "string", default: "10" },
      streams: { type: "string", default: "8" },
      seconds: { type: "string", default: "4" },
      rounds: { type: "string", default: "2" },
    },
  });
  const [streams, seconds, rounds] = [whole("streams", values.streams), whole("seconds", values.seconds), whole("rounds", values.rounds)];
  const threads = values["trainer-threads"].split(",").map((text) => whole("trainer-threads", text));
  const niceness = values.niceness.split(",").map((text) => whole("niceness", text, 0));
  console.log(
    `${streams} live streams, ${rounds} rounds of ${seconds} s per phase; gaps in ms at the client, event-loop delay in ms in the service\n`,
  );
  const lines: string[][] = [];
  for (const trainerThreads of threads) {
    for (const trainerNiceness of niceness) {
      const results = await measureService({ trainerThreads, trainerNiceness }, { streams, seconds, rounds });
      lines.push(
        ...PHASES.map((phase) => [
          String(trainerThreads),
          String(trainerNiceness),
          phase,
          ...cells(results[phase], results.idle, seconds * rounds),
        ]),
      );
    }
  }
  printTable(
    [
      "trainer threads",
      "niceness",
      "phase",
      "tokens/s",
      "gap p50",
      "gap p99",
      "p99 ÷ idle",
      "largest gap",
      "loop p99",
      "loop max",
      "trained tokens/s",
    ],
    lines,
  );
}

function cells({ gaps, loops, trained }: PhaseResult, idle: PhaseResult, seconds: number): string[] {
  const p99 = quantile(gaps, 0.99);
  return [
    short(gaps.length / seconds),
    quantile(gaps, 0.5).toFixed(1),
    p99.toFixed(1),
    (p99 / quantile(idle.gaps, 0.99)).toFixed(2),
    quantile(gaps, 1).toFixed(0),
    Math.max(...loops.map((loop) => loop.p99)).toFixed(1),
    Math.max(...loops.map((loop) => loop.max)).toFixed(0),
    trained.length === 0 ? "–" : short(median(trained)),
  ];
}

async function measureService(
  engine: Pick<HostInput, "trainerThreads" | "trainerNiceness">,
  { streams, seconds, rounds }: { readonly streams: number; readonly seconds: number; readonly rounds: number },
): Promise<Record<Phase, PhaseResult>> {
  return withHost(engine, async (address, host) => {
    const feeder = await JobFeeder.create(address);
    const live = new LiveStreams(address, streams);
    const results = Object.fromEntries(PHASES.map((phase) => [phase, { gaps: [], loops: [], trained: [] }])) as unknown as Record<
      Phase,
      PhaseResult
    >;
    // One job of each kind first: graphs are compiled once per process.
    await feeder.runOne("sft");
    await feeder.runOne("rl");
    for (let round = 0; round < rounds; round++) {
      for (const phase of PHASES) {
        const feeding = phase === "idle" ? null : feeder.start(phase);
        await live.run(500);
        host.send("take");
        await nextMessage<LoopDelay>(host);
        const gaps = await live.run(seconds * 1000);
        host.send("take");
        const result = results[phase];
        result.loops.push(await nextMessage<LoopDelay>(host));
        for (const gap of gaps) result.gaps.push(gap);
        if (feeding) result.trained.push(await feeding.stop());
      }
    }
    await live.stop();
    return results;
  });
}

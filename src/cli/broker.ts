/** Options of the commands whose rollouts a message broker can distribute. */
import type { Command } from "commander";
import { ArgumentError } from "../base/errors.ts";
import type { RolloutBroker } from "../library/environment/index.ts";

/** Parsed options of {@link addBroker}. */
export interface BrokerFlags {
  readonly redis?: string;
  readonly queue?: string;
}

/** Adds the options of the broker to a command. */
export function addBroker(command: Command): Command {
  return command
    .option(
      "--redis <url>",
      "distribute rollouts with BullMQ on this server, redis://user:password@host:6379; needs the packages bullmq and ioredis (default: WHETSTONE_REDIS, or none: the service distributes them)",
    )
    .option("--queue <name>", 'name of the queue on the Redis server; the same for a run and its workers (default: "whetstone")');
}

/**
 * Returns the broker of a command; undefined without one.
 *
 * @throws ArgumentError `E_ARGUMENT` for `--queue` without a server.
 * @throws ConfigError `E_CONFIG` for an address that is not one of Redis, or an invalid name of a queue.
 */
export async function brokerOf({ redis, queue }: BrokerFlags): Promise<RolloutBroker | undefined> {
  const connection = redis ?? process.env["WHETSTONE_REDIS"] ?? "";
  if (connection !== "") {
    const { bullmq } = await import("../library/brokers/bullmq.ts");
    return bullmq({ connection, queue });
  }
  if (queue === undefined) return undefined;
  throw new ArgumentError("`--queue` has no effect without a Redis server; give `--redis`, or set WHETSTONE_REDIS", { param: "--queue" });
}

/**
 * Returns the broker of a command that trains; undefined without one.
 *
 * @param workers - Setting `workers` of the command.
 * @throws ArgumentError `E_ARGUMENT` for `--redis` or `--queue` without workers, and for `--queue` without a server.
 * @throws ConfigError `E_CONFIG` for an address that is not one of Redis, or an invalid name of a queue.
 */
export async function brokerOfRun(flags: BrokerFlags, workers: boolean | undefined): Promise<RolloutBroker | undefined> {
  const options = { "--redis": flags.redis, "--queue": flags.queue };
  for (const [option, value] of Object.entries(options)) {
    if (value !== undefined && workers !== true)
      throw new ArgumentError(`\`${option}\` has no effect without workers; add \`--workers\``, { param: option });
  }
  return brokerOf(flags);
}

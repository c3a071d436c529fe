/** Parts that senders and receivers of BullMQ share: packages, messages, time limits and errors. */
import type * as bullmq from "bullmq";
import { z } from "zod";
import { ConfigError } from "../../base/errors.ts";
import { ConnectionError } from "../client/index.ts";
import type { RolloutMessage } from "../environment/index.ts";

/** Milliseconds within which Redis must answer a command. */
const COMMAND_MS = 10_000;
/** Milliseconds between two checks of the connection while a command waits. */
const CHECK_MS = 100;
/** Start of the messages of errors that a retry cannot avoid: the server refuses the user or the command. */
const REFUSED = /^(?:WRONGPASS|NOAUTH|NOPERM)\b/u;

/** Queue of BullMQ on a Redis server. */
export interface RedisQueue {
  readonly name: string;
  /** Options of the connection. */
  readonly connection: Readonly<Record<string, unknown>>;
  /** Name of the server in errors, without a password. */
  readonly label: string;
}

/** Loads BullMQ. @throws ConfigError `E_CONFIG` if it or its client of Redis is not installed. */
export async function loadBullmq(): Promise<typeof bullmq> {
  try {
    // BullMQ loads its client with the first connection.
    await import("ioredis");
    return await import("bullmq");
  } catch (cause) {
    throw new ConfigError(
      "The BullMQ broker needs the packages bullmq and ioredis, which cannot be loaded. Run `npm install bullmq ioredis`",
      { cause, param: "broker" },
    );
  }
}

/** Data of a job in the queue: a rollout by ids. */
const jobData = z.object({
  plan_id: z.string(),
  group: z.int(),
  index: z.int(),
  environment: z.string(),
  environment_hash: z.string(),
});

/** Data of a job in the queue. */
export type JobData = z.infer<typeof jobData>;

/** Returns the data of the job of a rollout. */
export function jobDataOf({ planId, group, index, environment, environmentHash }: RolloutMessage): JobData {
  return { plan_id: planId, group, index, environment, environment_hash: environmentHash };
}

/** Returns the id of the job of a rollout. The same rollout has the same id, so that the queue has it once. */
export function jobIdOf({ planId, group, index }: RolloutMessage): string {
  return `${planId}-${group}-${index}`;
}

/** Reads the data of a job. Returns null for data of another program. */
export function rolloutMessageOf(data: unknown): RolloutMessage | null {
  const read = jobData.safeParse(data);
  if (!read.success) return null;
  const { plan_id: planId, group, index, environment, environment_hash: environmentHash } = read.data;
  return { planId, group, index, environment, environmentHash };
}

/** Returns the error of a command that failed, or that Redis has not answered in time. */
export function connectionError({ label }: RedisQueue, cause: unknown): ConnectionError {
  const text = cause instanceof Error ? cause.message || cause.name : String(cause);
  return new ConnectionError(`${label} cannot be used: ${text}`, { cause, retryable: !REFUSED.test(text) });
}

/**
 * Waits for a command. BullMQ repeats commands until Redis answers, so the command may still take effect after the error. An error of the
 * connection ends the wait only after {@link COMMAND_MS}, because BullMQ connects again; a refusal ends it at the next check.
 *
 * @param lastError - Returns the last error of the connection; null for none.
 * @throws ConnectionError `E_CONNECTION` if the command fails, the server refuses the user, or the command takes longer than 10 s.
 */
export async function awaitCommand<T>(queue: RedisQueue, command: Promise<T>, lastError: () => Error | null): Promise<T> {
  const startedMs = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const failure = new Promise<never>((_, reject) => {
    timer = setInterval(() => {
      const error = lastError();
      const isLate = performance.now() - startedMs >= COMMAND_MS;
      if (error !== null && (isLate || REFUSED.test(error.message))) reject(error);
      else if (isLate) reject(new Error(`no answer within ${COMMAND_MS / 1000} s`));
    }, CHECK_MS);
  });
  try {
    return await Promise.race([command, failure]);
  } catch (error) {
    throw connectionError(queue, error);
  } finally {
    clearInterval(timer);
  }
}

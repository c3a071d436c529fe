/** Source of a worker's rollouts with a broker: a message names the rollout, which the worker then leases from the service. */
import { HttpError, type LeasedRolloutInfo, type LeasedRolloutsPage } from "../../client/index.ts";
import type { ReceivedRollout, RolloutBroker, RolloutReceiver } from "./broker.ts";
import type { ClaimEnd, NextTasks, TaskSource, WorkerInit } from "./task-source.ts";

/** Delay until a message is received again whose rollout could not be leased, in milliseconds; doubled with each reception. */
const MIN_DELAY_MS = 500;
/** Upper bound of the doubled delay, in milliseconds. */
const MAX_DELAY_MS = 30_000;

/** Result of a call that leased no task. */
const NO_TASKS: LeasedRolloutsPage = { tasks: [], plans: [] };

/** Opens the source of the tasks that a broker assigns. @throws ConfigError `E_CONFIG` if a package of the broker is not installed. */
export async function openBrokerSource(broker: RolloutBroker, init: WorkerInit): Promise<TaskSource> {
  return new BrokerSource(await broker.openReceiver({ lockSeconds: init.leaseSeconds }), init);
}

/** Source of the tasks that a broker assigns. Each is leased from the service, so that a message that arrives twice is played once. */
class BrokerSource implements TaskSource {
  readonly #receiver: RolloutReceiver;
  readonly #init: WorkerInit;
  /** Messages of the leased tasks. */
  readonly #received = new Map<LeasedRolloutInfo, ReceivedRollout>();

  constructor(receiver: RolloutReceiver, init: WorkerInit) {
    this.#receiver = receiver;
    this.#init = init;
  }

  async lease({ waitSeconds, signal }: NextTasks): Promise<LeasedRolloutsPage> {
    const received = await this.#receiver.receive({ waitSeconds, signal });
    if (received === null) return NO_TASKS;
    const { planId, group, index } = received.message;
    const { service, environments, name: worker, leaseSeconds } = this.#init;
    try {
      const rollout = { group, index };
      const leased = await service.rolloutPlans.lease({ worker, environments, planId, rollout, leaseSeconds, signal });
      const [task] = leased.tasks;
      // Another worker has the rollout, or no run waits for this version of the environment.
      if (task === undefined) await received.release(delayOf(received));
      else this.#received.set(task, received);
      return leased;
    } catch (error) {
      if (isOver(error)) {
        await received.complete();
        return NO_TASKS;
      }
      await received.release(signal.aborted ? 0 : delayOf(received)).catch(() => undefined);
      throw error;
    }
  }

  extend(): Promise<void> {
    return this.#receiver.extend();
  }

  /** Settles the message of a task. A task without a message was settled before. */
  async settle(task: LeasedRolloutInfo, end: ClaimEnd): Promise<void> {
    const received = this.#received.get(task);
    this.#received.delete(task);
    await (end === "over" ? received?.complete() : received?.release(0));
  }

  close(): Promise<void> {
    return this.#receiver.close();
  }
}

/** Returns the delay until a message is received again. */
function delayOf({ receptions }: ReceivedRollout): number {
  return Math.min(MIN_DELAY_MS * 2 ** Math.max(0, receptions - 1), MAX_DELAY_MS);
}

/** Whether the service needs no worker for a rollout any more: it is finished, or its plan is cancelled or deleted. */
function isOver(error: unknown): boolean {
  if (!(error instanceof HttpError)) return false;
  return (error.status === 404 || error.status === 409) && (error.param === "plan_id" || error.param === "rollout");
}

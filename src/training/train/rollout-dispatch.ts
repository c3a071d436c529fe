/** Messages of a run to the workers of a broker, one for each rollout without an outcome. */
import { getOrInsert } from "../../base/util/values.ts";
import type { RolloutPlanInfo, RolloutPosition } from "../../library/client/index.ts";
import type { RolloutBroker, RolloutMessage, RolloutSender } from "../../library/environment/index.ts";

/** Sends the rollouts of plans to the workers of a broker. Without a broker, the service assigns rollouts, and nothing is sent. */
export class RolloutDispatch {
  readonly #broker: RolloutBroker | null;
  readonly #patiently: <T>(request: () => Promise<T>) => Promise<T>;
  /** Messages of the rollouts without an outcome, by plan and rollout. */
  readonly #unfinished = new Map<string, Map<string, RolloutMessage>>();
  /** Connection to the broker; null before the first message. */
  #sender: Promise<RolloutSender> | null = null;

  /** @param patiently - Repeats a request while the broker is unavailable. */
  constructor(broker: RolloutBroker | null, patiently: <T>(request: () => Promise<T>) => Promise<T>) {
    this.#broker = broker;
    this.#patiently = patiently;
  }

  /** Sends all rollouts of groups of a plan. */
  async send(plan: RolloutPlanInfo, groups: Iterable<number>, groupSize: number): Promise<void> {
    if (this.#broker === null) return;
    const messages = getOrInsert(this.#unfinished, plan.id, () => new Map<string, RolloutMessage>());
    const { id: planId, environment, environmentHash } = plan;
    for (const group of groups) {
      for (let index = 0; index < groupSize; index++) {
        messages.set(keyOf({ group, index }), { planId, group, index, environment, environmentHash });
      }
    }
    await this.resend(plan.id);
  }

  /** Sends the unfinished rollouts of a plan again, because a broker may lose messages. The broker ignores the messages that it has. */
  async resend(planId: string): Promise<void> {
    const unfinished = [...(this.#unfinished.get(planId)?.values() ?? [])];
    if (this.#broker === null || unfinished.length === 0) return;
    this.#sender ??= this.#broker.openSender();
    const sender = await this.#sender;
    await this.#patiently(() => sender.send(unfinished));
  }

  /** Records that a rollout has an outcome: its message is not sent again. */
  finish(planId: string, rollout: RolloutPosition): void {
    const messages = this.#unfinished.get(planId);
    messages?.delete(keyOf(rollout));
    if (messages?.size === 0) this.#unfinished.delete(planId);
  }

  /**
   * Removes the messages of all rollouts without an outcome, and ends the connection. Workers discard messages that they have received
   * already.
   */
  async close(): Promise<void> {
    if (this.#sender === null) return;
    const sender = await this.#sender.catch(() => null);
    const messages = [...this.#unfinished.values()].flatMap((each) => [...each.values()]);
    await sender?.remove(messages).catch(() => undefined);
    await sender?.close();
  }
}

/** Returns the key of a rollout within its plan. */
function keyOf({ group, index }: RolloutPosition): string {
  return `${group}:${index}`;
}

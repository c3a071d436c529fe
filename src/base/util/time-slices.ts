/**
 * Share of the event loop for work that arrives in large numbers, such as requests: callers continue for one time slice of each turn of the
 * loop, so that other events are handled in between.
 */

import { newGroup, type RequestGroup } from "./request-group.ts";
import { getOrInsert } from "./values.ts";

/** Length of a time slice in milliseconds. */
const SLICE_MS = 10;

/** Max milliseconds between the first {@link TimeSlices.postpone} and the next time slice. */
const MAX_POSTPONED_MS = 50;

/** Waiting callers: round robin over clients, over the groups of a client, and first in, first out within a group. */
class WaitingCallers {
  /** Callers by client and group, the next ones first. */
  readonly #clients = new Map<string, Map<number, (() => void)[]>>();

  get isEmpty(): boolean {
    return this.#clients.size === 0;
  }

  add({ client, id }: RequestGroup, caller: () => void): void {
    const groups = getOrInsert(this.#clients, client, () => new Map<number, (() => void)[]>());
    getOrInsert(groups, id, () => []).push(caller);
  }

  /** Removes and returns the next caller. Must not be called without callers. */
  next(): () => void {
    const [client, groups] = this.#clients.entries().next().value!;
    const [id, callers] = groups.entries().next().value!;
    const caller = callers.shift()!;
    groups.delete(id);
    if (callers.length > 0) groups.set(id, callers);
    this.#clients.delete(client);
    if (groups.size > 0) this.#clients.set(client, groups);
    return caller;
  }
}

/** Client of callers without a group. */
const ANONYMOUS = "";

/** Scheduler of callers that share the event loop. Clients take turns, and so do the groups of a client. */
export class TimeSlices {
  readonly #waiting = new WaitingCallers();
  /** Callers that end work. They continue before `#waiting`. */
  readonly #ending = new WaitingCallers();
  /** Whether a slice is scheduled or running; callers then wait for it. */
  #isBusy = false;
  /** Number of callers that have continued. */
  #continuedCallers = 0;
  /** Whether `postpone` was called in the current turn of the event loop. */
  #isPostponed = false;
  /** Time of the first postponed turn since the last slice, or null. */
  #postponedSinceMs: number | null = null;

  /**
   * Returns undefined if the caller may continue now: the first caller of a turn of the event loop. For further callers returns a promise
   * that resolves at the end of the turn, or of a later turn if a time slice has passed.
   *
   * @param group - Group of the caller, such as the HTTP request that it belongs to. @default a group of its own, of a client that all such callers share
   */
  enter(group: RequestGroup = newGroup(ANONYMOUS)): Promise<void> | undefined {
    return this.#enter(this.#waiting, group);
  }

  /**
   * As {@link enter}, for the end of work, such as a complete response. Precedes all callers of `enter`: the end of a request does not wait
   * for later requests.
   */
  enterToEnd(group: RequestGroup): Promise<void> | undefined {
    return this.#enter(this.#ending, group);
  }

  /**
   * Waits for work that many callers may share, such as loading a model, and then for a time slice as {@link enter} does. Without the
   * second wait, all callers would continue in the turn in which the work ends. If the work ends within the caller's own slice, there is no
   * second wait.
   *
   * @param group - As for {@link enter}.
   */
  async after<T>(work: Promise<T>, group?: RequestGroup): Promise<T> {
    const callersBefore = this.#continuedCallers;
    const result = await work;
    if (this.#continuedCallers !== callersBefore || !this.#isBusy) await this.enter(group);
    return result;
  }

  /**
   * Leaves the event loop to other events: no caller continues until a turn of the loop ends without a call of `postpone`, or 50 ms have
   * passed. Call it for each event of a kind that the loop handles once per turn, such as an accepted connection: only if the turn ends
   * early does the loop reach the next such event sooner.
   */
  postpone(): void {
    this.#isPostponed = true;
    if (!this.#isBusy) this.#scheduleSlice();
  }

  /** Lets the caller continue if no slice is scheduled or running, else adds the caller to `waiting`. */
  #enter(waiting: WaitingCallers, group: RequestGroup): Promise<void> | undefined {
    if (this.#isBusy) return new Promise((resolve) => waiting.add(group, resolve));
    this.#scheduleSlice();
    this.#continuedCallers++;
    return undefined;
  }

  /** Whether any caller waits. */
  get #isAwaited(): boolean {
    return !this.#ending.isEmpty || !this.#waiting.isEmpty;
  }

  /** Runs a slice in the next turn of the event loop. Callers wait until then. */
  #scheduleSlice(): void {
    this.#isBusy = true;
    setImmediate(() => void this.#runSlice());
  }

  /** Lets waiting callers continue for one time slice, unless the slice is postponed to the next turn of the event loop. */
  async #runSlice(): Promise<void> {
    const startedMs = performance.now();
    if (this.#isPostponed) {
      this.#isPostponed = false;
      this.#postponedSinceMs ??= startedMs;
      if (startedMs - this.#postponedSinceMs < MAX_POSTPONED_MS) return this.#scheduleSlice();
    }
    this.#postponedSinceMs = null;
    while (this.#isAwaited && performance.now() - startedMs < SLICE_MS) {
      const caller = (this.#ending.isEmpty ? this.#waiting : this.#ending).next();
      this.#continuedCallers++;
      caller();
      // Ticks run after all microtasks, and so after the caller's work up to its first wait for an event.
      await new Promise<void>((resolve) => process.nextTick(resolve));
    }
    if (this.#isAwaited) this.#scheduleSlice();
    else this.#isBusy = false;
  }
}

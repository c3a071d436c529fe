/**
 * Division of prefill time among groups of requests, so that no group waits for another one's prompts.
 *
 * @source Goyal, Vin and Cheng, "Start-time fair queueing", 1997.
 */
import { priorityOf, type Request } from "./request.ts";

/**
 * Max groups with a recorded share. Beyond it, groups without more than the present share are removed, which does not change their order.
 */
const MAX_KNOWN = 4096;

/** Milliseconds of prefill that each group has used. A new group starts where the present one is, not at zero. */
export class FairShare {
  readonly #used = new Map<number, number>();
  /** Share of the group that was served last, when its turn began. */
  #now = 0;

  /** Returns the share of a group: the group with the smallest share is served next. */
  of(group: number): number {
    return Math.max(this.#used.get(group) ?? 0, this.#now);
  }

  /** Adds the time of one turn to the groups that it served, in equal parts. */
  charge(groups: readonly number[], ms: number): void {
    this.#now = groups.reduce((smallest, group) => Math.min(smallest, this.of(group)), Infinity);
    for (const group of groups) this.#used.set(group, this.of(group) + ms / groups.length);
    if (this.#used.size <= MAX_KNOWN) return;
    for (const [group, used] of this.#used) if (used <= this.#now) this.#used.delete(group);
  }

  /**
   * Returns the request to serve next: with the highest priority, then of the group with the smallest share, then the first one given.
   *
   * @param isReady - Whether a request can be served now. @default all can
   */
  next(requests: Iterable<Request>, isReady: (request: Request) => boolean = () => true): Request | undefined {
    let best: Request | undefined;
    for (const request of requests) if ((best === undefined || this.precedes(request, best)) && isReady(request)) best = request;
    return best;
  }

  /** Whether a request is served before another one, which came first. Requests whose rows were suspended continue in their order. */
  precedes(request: Request, other: Request): boolean {
    const [own, others] = [priorityOf(request), priorityOf(other)];
    if (own !== others) return own < others;
    if (request.sampled > 0 || other.sampled > 0) return other.sampled === 0;
    return this.of(request.group) < this.of(other.group);
  }
}

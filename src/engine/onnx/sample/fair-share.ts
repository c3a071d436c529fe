/**
 * Division of prefill time among clients, and among the groups of requests of a client, so that none waits for another one's prompts.
 *
 * @source Goyal, Vin and Cheng, "Start-time fair queueing", 1997; hierarchical as in section 3 there.
 */
import type { RequestGroup } from "../../../base/util/request-group.ts";
import { priorityOf, type Request } from "./request.ts";

/**
 * Max keys with a recorded share. Beyond it, keys with the smallest share are removed, which does not change their order.
 */
const MAX_KNOWN = 4096;

/**
 * Milliseconds of prefill that a client without waiting prompts saves up, at most. A client with few prompts is served at once, instead of
 * in turns with a client that always has some.
 */
const CREDIT_MS = 50;

/**
 * Milliseconds of prefill by which the client of a started prompt may be ahead of another one, so that the prompt is completed first:
 * computing two prompts in turns delays the first token of one and does not speed up the other. Less than {@link CREDIT_MS}, so that a client
 * with many prompts does not delay one with few.
 */
const QUANTUM_MS = 30;

/** Milliseconds that each key has used. A new key starts where the present one is, less its credit, and not at zero. */
class VirtualTimes<K> {
  readonly #credit: number;
  readonly #used = new Map<K, number>();
  /** Time of the key that was served last, when its turn began. */
  #now = 0;

  /** @param credit - Max milliseconds that an idle key saves up. */
  constructor(credit: number) {
    this.#credit = credit;
  }

  of(key: K): number {
    return Math.max(this.#used.get(key) ?? -Infinity, this.#now - this.#credit);
  }

  /** Adds the time of one turn to the keys that it served, in equal parts. */
  charge(keys: ReadonlySet<K>, ms: number): void {
    const smallest = [...keys].reduce((least, key) => Math.min(least, this.of(key)), Infinity);
    this.#now = Math.max(this.#now, smallest);
    for (const key of keys) this.#used.set(key, this.of(key) + ms / keys.size);
    if (this.#used.size <= MAX_KNOWN) return;
    for (const [key, used] of this.#used) if (used <= this.#now - this.#credit) this.#used.delete(key);
  }
}

/**
 * Shares of clients and groups: the client with the smallest share is served next, of its requests those with the highest priority, and of
 * their groups the one with the smallest share. A priority orders the requests of one client, so none delays the requests of another one.
 */
export class FairShare {
  readonly #clients = new VirtualTimes<string>(CREDIT_MS);
  readonly #groups = new VirtualTimes<number>(0);

  /** Adds the time of one turn to the clients and groups that it served, in equal parts. */
  charge(groups: readonly RequestGroup[], ms: number): void {
    this.#clients.charge(new Set(groups.map(({ client }) => client)), ms);
    this.#groups.charge(new Set(groups.map(({ id }) => id)), ms);
  }

  /**
   * Returns the request to serve next: of the client with the smallest share, with the highest priority, of the group with the smallest
   * share, the first one given.
   *
   * @param isReady - Whether a request can be served now. @default all can
   */
  next(requests: Iterable<Request>, isReady: (request: Request) => boolean = () => true): Request | undefined {
    let best: Request | undefined;
    for (const request of requests) if ((best === undefined || this.precedes(request, best)) && isReady(request)) best = request;
    return best;
  }

  /**
   * Whether a request is served before another one, which came first. The requests of a client whose rows were suspended continue in their
   * order, before its other requests.
   */
  precedes(request: Request, other: Request): boolean {
    const { client, id } = request.group;
    if (client !== other.group.client) return this.#clients.of(client) < this.#clients.of(other.group.client);
    const [own, others] = [priorityOf(request), priorityOf(other)];
    if (own !== others) return own < others;
    if (request.sampled > 0 || other.sampled > 0) return other.sampled === 0;
    return this.#groups.of(id) < this.#groups.of(other.group.id);
  }

  /** Whether a waiting request is served before the rest of a prompt that was started, see {@link QUANTUM_MS}. */
  interrupts(waiting: Request, started: Request): boolean {
    const [client, other] = [waiting.group.client, started.group.client];
    return client === other ? this.precedes(waiting, started) : this.#clients.of(client) < this.#clients.of(other) - QUANTUM_MS;
  }
}

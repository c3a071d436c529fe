/** Queue of waiting requests: the most urgent first, among equals the earliest. */
import { priorityOf, type Request } from "./request.ts";

/** Waiting requests, sorted by priority, then by arrival. */
export class WaitingQueue {
  #waiting: Request[] = [];

  get length(): number {
    return this.#waiting.length;
  }

  get first(): Request | undefined {
    return this.#waiting[0];
  }

  add(request: Request): void {
    const before = this.#waiting.findIndex((other) => priorityOf(other) > priorityOf(request));
    this.#waiting.splice(before === -1 ? this.#waiting.length : before, 0, request);
  }

  /** Counts the requests that wait for a batch. */
  countOf(batchKey: string): number {
    return this.#waiting.reduce((count, request) => count + Number(request.policy.batchKey === batchKey), 0);
  }

  /** Removes and returns, in order, the requests for which `isWanted` is true. */
  take(isWanted: (request: Request) => boolean): Request[] {
    const taken: Request[] = [];
    this.#waiting = this.#waiting.filter((request) => {
      if (!isWanted(request)) return true;
      taken.push(request);
      return false;
    });
    return taken;
  }
}

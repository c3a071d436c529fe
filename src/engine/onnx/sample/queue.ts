/** Queue of waiting requests: the most urgent first, among equals the earliest, which has the lowest id. */
import { isBefore, type Request } from "./request.ts";

/** Waiting requests, sorted by {@link isBefore}. */
export class WaitingQueue {
  #waiting: Request[] = [];

  get length(): number {
    return this.#waiting.length;
  }

  add(request: Request): void {
    const before = this.#waiting.findIndex((other) => isBefore(request, other));
    this.#waiting.splice(before === -1 ? this.#waiting.length : before, 0, request);
  }

  [Symbol.iterator](): Iterator<Request> {
    return this.#waiting[Symbol.iterator]();
  }

  /** Counts the requests that wait for a batch. */
  countOf(batchKey: string): number {
    return this.#waiting.reduce((count, request) => count + Number(request.policy.batchKey === batchKey), 0);
  }

  /** Removes and returns, in order, the requests for which `isWanted` is true. */
  remove(isWanted: (request: Request) => boolean): Request[] {
    const taken: Request[] = [];
    this.#waiting = this.#waiting.filter((request) => {
      if (!isWanted(request)) return true;
      taken.push(request);
      return false;
    });
    return taken;
  }
}

/** Requests that wait for a place: the most urgent first, of equal ones the earliest. */
import { priorityOf, type Request } from "./request.ts";

/** See the file header. */
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

  /** How many wait for one batch. */
  countOf(batchKey: string): number {
    return this.#waiting.reduce((count, request) => count + Number(request.policy.batchKey === batchKey), 0);
  }

  /** Takes out, in order, the requests that `isWanted` says yes to. */
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

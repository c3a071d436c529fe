/** How many bytes of request bodies are in memory at one time. */
import type { MiddlewareHandler } from "hono";
import type { ServiceEnvironment } from "./body.ts";

/** Bodies up to this length are read at once; their number is bounded by that of connections. */
const SMALL_BODY_BYTES = 1024 * 1024;

interface Waiting {
  readonly bytes: number;
  readonly start: () => void;
}

/** Admits bodies in the order of their arrival while their lengths together are within a budget. */
export class BodyBudget {
  readonly #budgetBytes: number;
  readonly #waiting: Waiting[] = [];
  #heldBytes = 0;

  /** @param budgetBytes - Bytes of all bodies together; one body alone may have more. */
  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  /** Bytes held now. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /**
   * Waits until there is room for a body.
   *
   * @returns Releases the room; call it once.
   * @throws the signal's reason, while waiting.
   */
  async enter(bytes: number, signal: AbortSignal): Promise<() => void> {
    if (this.#waiting.length > 0 || !this.#hasRoom(bytes)) await this.#turn(bytes, signal);
    else this.#heldBytes += bytes;
    return () => {
      this.#heldBytes -= bytes;
      this.#admit();
    };
  }

  #turn(bytes: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        reject(signal.reason as Error);
        this.#admit();
      };
      const entry: Waiting = {
        bytes,
        start: () => {
          signal.removeEventListener("abort", leave);
          resolve();
        },
      };
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(entry);
    });
  }

  #hasRoom(bytes: number): boolean {
    return this.#heldBytes === 0 || this.#heldBytes + bytes <= this.#budgetBytes;
  }

  #admit(): void {
    for (let next = this.#waiting[0]; next !== undefined && this.#hasRoom(next.bytes); next = this.#waiting[0]) {
      this.#waiting.shift();
      this.#heldBytes += next.bytes;
      next.start();
    }
  }
}

/**
 * Reads large bodies only while all that are in memory fit a budget. Those that wait stay in their sockets: nothing of them is read.
 *
 * @param maxBytes - Length of a body that does not state its own.
 */
export function budgetBodies(budget: BodyBudget, maxBytes: (path: string) => number): MiddlewareHandler<ServiceEnvironment> {
  return async function budgetBodiesMiddleware(c, next) {
    const { headers } = c.env.incoming;
    const isChunked = headers["transfer-encoding"] !== undefined;
    const bytes = isChunked ? maxBytes(c.req.path) : Number(headers["content-length"] ?? 0);
    if (bytes <= SMALL_BODY_BYTES) return next();
    const release = await budget.enter(bytes, c.req.raw.signal);
    try {
      await next();
    } finally {
      release();
    }
  };
}

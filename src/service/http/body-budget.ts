/** Limit on the bytes of request bodies that are in memory at one time. */
import type { MiddlewareHandler } from "hono";
import { SMALL_BODY_BYTES, type ServiceEnvironment } from "./body.ts";
import { onceAborted } from "../../base/util/abort.ts";

/** Body that waits for admission. */
interface WaitingBody {
  readonly bytes: number;
  /** Called when the body is admitted; its bytes are counted already. */
  readonly start: () => void;
}

/** Admits bodies in order of arrival while their total length is within a budget. */
export class BodyBudget {
  readonly #budgetBytes: number;
  readonly #waiting: WaitingBody[] = [];
  #heldBytes = 0;

  /** @param budgetBytes - Max bytes of all admitted bodies. A single body may exceed the budget if it is the only one. */
  constructor(budgetBytes: number) {
    this.#budgetBytes = budgetBytes;
  }

  /** Bytes of the bodies admitted now. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /**
   * Waits until the budget admits a body.
   *
   * @param bytes - Length of the body.
   * @param signal - Abort signal of the wait.
   * @returns a function that releases the bytes; call it exactly once.
   * @throws the signal's reason if `signal` aborts during the wait.
   */
  async enter(bytes: number, signal: AbortSignal): Promise<() => void> {
    if (this.#waiting.length > 0 || !this.#hasCapacity(bytes)) await this.#waitForCapacity(bytes, signal);
    else this.#heldBytes += bytes;
    return () => {
      this.#heldBytes -= bytes;
      this.#admit();
    };
  }

  /** Waits until {@link BodyBudget.#admit} admits the bytes, which it then counts in `#heldBytes`. */
  #waitForCapacity(bytes: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.splice(this.#waiting.indexOf(entry), 1);
        reject(signal.reason as Error);
        // The next body may be smaller than the one that left.
        this.#admit();
      };
      const entry: WaitingBody = {
        bytes,
        start: () => {
          removeListener();
          resolve();
        },
      };
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      const removeListener = onceAborted(signal, leave);
      this.#waiting.push(entry);
    });
  }

  #hasCapacity(bytes: number): boolean {
    return this.#heldBytes === 0 || this.#heldBytes + bytes <= this.#budgetBytes;
  }

  /** Admits waiting bodies in order, up to the first one that does not fit. */
  #admit(): void {
    for (;;) {
      const next = this.#waiting[0];
      if (next === undefined || !this.#hasCapacity(next.bytes)) return;
      this.#waiting.shift();
      this.#heldBytes += next.bytes;
      next.start();
    }
  }
}

/**
 * Creates a middleware that delays large bodies until the budget admits them, and releases them when the request is answered. Nothing is read
 * from the socket of a waiting request.
 *
 * @param budget - Budget shared by all requests.
 * @param maxBytes - Returns the length assumed for a chunked body sent to a path.
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

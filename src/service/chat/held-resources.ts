/** Resources that requests hold until they end or fail: capacity, the policy, and the listeners of the two signals that end them early. */
import { onceAborted } from "../../base/util/abort.ts";
import { ChoiceLimiter } from "./generate/admit.ts";
import { clientGone } from "./request/client-signal.ts";
import { ShutdownError } from "./request/errors.ts";

/** Resources of one request. */
export class HeldResources {
  readonly #releases: (() => void)[] = [];
  /** Aborts the request. */
  readonly abort = new AbortController();

  /** Adds a resource. `release` is called once, by {@link HeldResources.release}. */
  add(release: () => void): void {
    this.#releases.push(release);
  }

  /** Returns the result of a function. Releases the resources if it fails. */
  unlessFails<T>(compute: () => T): T {
    try {
      return compute();
    } catch (error) {
      this.release();
      throw error;
    }
  }

  /** Releases the resources. A second call has no effect. */
  release(): void {
    for (const release of this.#releases.splice(0)) release();
  }
}

/** The running requests of a service. */
export class RunningRequests {
  readonly #running = new Set<AbortController>();
  readonly #admission: ChoiceLimiter;
  readonly #service: AbortSignal | undefined;

  /**
   * @param capacity - Max number of choices that run at a time.
   * @param service - Aborted when the service shuts down: all requests are aborted with {@link ShutdownError}.
   */
  constructor(capacity: number, service: AbortSignal | undefined) {
    this.#admission = new ChoiceLimiter(capacity);
    this.#service = service;
    // One listener serves all requests: hundreds of listeners on one signal raise Node's leak warning.
    onceAborted(service, () => {
      for (const abort of this.#running) abort.abort(new ShutdownError());
    });
  }

  /** Checks that there is room for a choice of an entity. @throws OverloadedError `E_OVERLOADED` without. */
  requireRoom(entity: string): void {
    this.#admission.requireRoom(entity);
  }

  /**
   * Reserves capacity for the choices of a request, and aborts it when its client disconnects.
   *
   * @throws OverloadedError `E_OVERLOADED` without capacity.
   * @throws ShutdownError During the shutdown.
   */
  enter(client: AbortSignal, choices: number, entity: string): HeldResources {
    if (this.#service?.aborted) throw new ShutdownError();
    const held = new HeldResources();
    held.add(this.#admission.enter(choices, entity));
    held.add(onceAborted(client, () => held.abort.abort(clientGone())));
    this.#running.add(held.abort);
    held.add(() => this.#running.delete(held.abort));
    return held;
  }
}

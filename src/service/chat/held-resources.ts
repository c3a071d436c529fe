/** Resources that requests hold until they end or fail: capacity, the policy, and the listeners of the two signals that end them early. */
import { onceAborted } from "../../base/util/abort.ts";
import { ChoiceLimiter } from "./generate/choice-limiter.ts";
import { clientGone } from "./request/client-signal.ts";
import { ShutdownError } from "./request/errors.ts";

/** Resources of one request, in the order of their acquisition, in which they are also released. */
export class HeldResources {
  readonly #releases: (() => void)[] = [];
  /** Aborts the request. */
  readonly controller = new AbortController();

  /** Adds a resource. `release` is called once, by {@link HeldResources.release}. */
  add(release: () => void): void {
    this.#releases.push(release);
  }

  /** Returns the result of a function. Releases the resources if it fails. */
  releaseIfFails<T>(compute: () => T): T {
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
  /** Aborted when the service shuts down. */
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
      for (const controller of this.#running) controller.abort(new ShutdownError());
    });
  }

  /** Checks that there is room for a choice of an entity. @throws OverloadedError `E_OVERLOADED` without. */
  requireRoom(entity: string): void {
    this.#admission.requireRoom(entity);
  }

  /**
   * Reserves capacity for the choices of a request, and aborts the request when its client disconnects. The caller must release the returned
   * resources when the request ends.
   *
   * @param choices - Number of choices; 0 for a request that samples nothing.
   * @throws OverloadedError `E_OVERLOADED` without capacity.
   * @throws ShutdownError During the shutdown.
   */
  enter(client: AbortSignal, choices: number, entity: string): HeldResources {
    if (this.#service?.aborted) throw new ShutdownError();
    const resources = new HeldResources();
    resources.add(this.#admission.enter(choices, entity));
    resources.add(onceAborted(client, () => resources.controller.abort(clientGone())));
    this.#running.add(resources.controller);
    resources.add(() => this.#running.delete(resources.controller));
    return resources;
  }
}

/** Adapters on an upstream. An adapter is loaded at its first use; unused adapters stay loaded up to a limit. */
import { EngineError } from "../../base/errors.ts";
import { Leases } from "../../base/util/leases.ts";
import { upstreamText, type Upstream } from "./upstream.ts";

/** Lease of an adapter, which stays loaded until {@link AdapterLease.release}. */
export interface AdapterLease {
  /** Name of the adapter on the upstream. */
  readonly name: string;
  /** Ends the lease; further calls have no effect. */
  release(): void;
  /** Marks the adapter as not loaded, for example after a restart of the upstream; the next lease loads it again. */
  forget(): void;
}

/** State of an adapter on the upstream. */
interface Adapter {
  /** False once the adapter is being unloaded, or the upstream has lost it. */
  isLoaded: boolean;
}

/** Default of `UpstreamOptions.maxIdleAdapters`. */
const DEFAULT_MAX_IDLE = 8;

/** Loads and unloads the adapters of one upstream. */
export class UpstreamAdapters {
  readonly #upstream: Upstream;
  readonly #onFailure: (error: unknown) => void;
  readonly #adapters: Leases<string, Adapter>;
  /** Unloads in progress, by the name of the adapter; they never reject. */
  readonly #unloads = new Map<string, Promise<void>>();

  /** @param onFailure - Called with the error if an adapter could not be unloaded. */
  constructor(upstream: Upstream, onFailure: (error: unknown) => void) {
    this.#upstream = upstream;
    this.#onFailure = onFailure;
    const maxIdle = upstream.options.maxIdleAdapters ?? DEFAULT_MAX_IDLE;
    this.#adapters = new Leases({ maxIdle, dispose: (adapter, name) => this.#dispose(adapter, name) });
  }

  /**
   * Leases an adapter for one request and loads it if necessary.
   *
   * @param name - Name that is unique for the weights; every checkpoint has its own name.
   * @param path - PEFT directory, as a path on the upstream.
   * @throws EngineError `E_ENGINE` if the upstream does not load the adapter; the message has the upstream's reason.
   */
  async lease(name: string, path: string): Promise<AdapterLease> {
    const { value: adapter, release } = await this.#adapters.lease(name, () => this.#load(name, path));
    const forget = () => {
      if (!adapter.isLoaded) return;
      adapter.isLoaded = false;
      this.#adapters.forget(name);
    };
    return { name, release, forget };
  }

  /** Loads an adapter on the upstream. */
  async #load(name: string, path: string): Promise<Adapter> {
    // During an unload, the upstream would report that the adapter is already loaded and then unload it.
    await this.#unloads.get(name);
    const body = JSON.stringify({ lora_name: name, lora_path: path });
    const answer = await this.#upstream.post("/v1/load_lora_adapter", body, {});
    const text = await upstreamText(answer);
    // "Already loaded" means that an earlier run of this service loaded the adapter.
    if (answer.status < 300 || (answer.status === 400 && text.includes("already been loaded"))) return { isLoaded: true };
    throw new EngineError(`The upstream did not load the adapter at ${path}: ${answer.status} ${text.slice(0, 500)}`);
  }

  /** Starts to unload an adapter, unless the upstream has lost it. */
  #dispose(adapter: Adapter, name: string): void {
    if (!adapter.isLoaded) return;
    adapter.isLoaded = false;
    const unload = this.#unload(name)
      .catch(this.#onFailure)
      .finally(() => {
        if (this.#unloads.get(name) === unload) this.#unloads.delete(name);
      });
    this.#unloads.set(name, unload);
  }

  /** Unloads an adapter on the upstream. */
  async #unload(name: string): Promise<void> {
    const answer = await this.#upstream.post("/v1/unload_lora_adapter", JSON.stringify({ lora_name: name }), {});
    const text = await upstreamText(answer);
    if (answer.status >= 300)
      throw new EngineError(`The upstream did not unload the adapter ${name}: ${answer.status} ${text.slice(0, 500)}`);
  }
}

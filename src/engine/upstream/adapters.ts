/** Adapters on an upstream: loaded when they are first sampled, kept while they are used, and some of them a while longer. */
import { EngineError } from "../../errors.ts";
import { textOf, type Upstream } from "./upstream.ts";

/** An adapter that stays loaded until {@link AdapterLease.release}. */
export interface AdapterLease {
  /** Its name on the upstream. */
  readonly name: string;
  release(): void;
  /** Says that the upstream does not have it after all, as after a restart: the next lease loads it. */
  forget(): void;
}

interface Entry {
  readonly loaded: Promise<void>;
  leases: number;
}

const DEFAULT_MAX_IDLE = 8;

/** See the file header. */
export class UpstreamAdapters {
  readonly #upstream: Upstream;
  readonly #maxIdle: number;
  readonly #onFailure: (error: unknown) => void;
  // In the order of use, oldest first.
  readonly #entries = new Map<string, Entry>();
  readonly #unloads = new Map<string, Promise<void>>();

  /** @param onFailure - Told of an adapter that could not be unloaded. */
  constructor(upstream: Upstream, onFailure: (error: unknown) => void) {
    this.#upstream = upstream;
    this.#maxIdle = upstream.options.maxIdleAdapters ?? DEFAULT_MAX_IDLE;
    this.#onFailure = onFailure;
  }

  /**
   * Holds an adapter for one request.
   *
   * @param name - Unique for its weights: another checkpoint is another name.
   * @param path - PEFT directory, as the upstream sees it.
   * @throws EngineError `E_ENGINE` when the upstream does not load it; the message has its reason.
   */
  async lease(name: string, path: string): Promise<AdapterLease> {
    const entry = this.#entries.get(name) ?? { loaded: this.#load(name, path), leases: 0 };
    this.#entries.delete(name);
    this.#entries.set(name, entry);
    entry.leases++;
    let isHeld = true;
    const release = () => {
      if (!isHeld) return;
      isHeld = false;
      entry.leases--;
      this.#evict();
    };
    const forget = () => {
      if (this.#entries.get(name) === entry) this.#entries.delete(name);
    };
    try {
      await entry.loaded;
      return { name, release, forget };
    } catch (error) {
      // The next request tries again.
      forget();
      release();
      throw error;
    }
  }

  async #load(name: string, path: string): Promise<void> {
    // The upstream would say that it is loaded already, and then unload it.
    await this.#unloads.get(name);
    const body = JSON.stringify({ lora_name: name, lora_path: path });
    const answer = await this.#upstream.post("/v1/load_lora_adapter", body, {});
    const text = await textOf(answer);
    // Loaded before this service last started.
    if (answer.status < 300 || (answer.status === 400 && text.includes("already been loaded"))) return;
    throw new EngineError(`The upstream did not load the adapter at ${path}: ${answer.status} ${text.slice(0, 500)}`);
  }

  #evict(): void {
    const idle = [...this.#entries].filter(([, { leases }]) => leases === 0);
    for (const [name] of idle.slice(0, Math.max(0, idle.length - this.#maxIdle))) {
      this.#entries.delete(name);
      const unload = this.#unload(name)
        .catch(this.#onFailure)
        .finally(() => {
          if (this.#unloads.get(name) === unload) this.#unloads.delete(name);
        });
      this.#unloads.set(name, unload);
    }
  }

  async #unload(name: string): Promise<void> {
    const answer = await this.#upstream.post("/v1/unload_lora_adapter", JSON.stringify({ lora_name: name }), {});
    const text = await textOf(answer);
    if (answer.status >= 300)
      throw new EngineError(`The upstream did not unload the adapter ${name}: ${answer.status} ${text.slice(0, 500)}`);
  }
}

/** Weights for sampling: bases, adapters on them, and models trained throughout, by policy id. */
import { NotFoundError } from "../../../errors.ts";
import { remember } from "../../../util/remember.ts";
import type { ModelConfig } from "../model/config.ts";
import { readModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, baseLayout, type Layout } from "../model/parameters.ts";
import { readAdapterOrWeights } from "../model/state.ts";
import { readBaseWeights } from "../model/weights.ts";
import type { BaseSource } from "../train/trainer.ts";
import type { LoadedAdapter } from "./adapters.ts";

/** Weights that a batch runs on: a base as it is, under adapters, or trained throughout. */
export interface Weights {
  readonly config: ModelConfig;
  readonly layout: Layout;
  readonly flat: Float32Array;
}

/** Weights under an id, until it is released and its last request has ended. */
export interface Policy {
  /** Requests with equal keys run in one batch. */
  readonly batchKey: string;
  readonly weights: Weights;
  readonly adapter: LoadedAdapter | null;
  /** Running and waiting requests. */
  users: number;
  isReleased: boolean;
}

/** See the file header. */
export class Policies {
  readonly #onForgotten: (policy: Policy) => void;
  readonly #configs = new Map<string, Promise<ModelConfig>>();
  readonly #bases = new Map<string, Promise<Weights>>();
  readonly #policies = new Map<string, Policy>();

  /** @param onForgotten - Told of each policy that nobody can use any more. */
  constructor(onForgotten: (policy: Policy) => void) {
    this.#onForgotten = onForgotten;
  }

  /** Takes over trained weights, or an adapter's, under a new id; null = the base as it is. */
  async add(id: string, base: BaseSource, trained: { flat: Float32Array; lora: Adapter | null } | null): Promise<void> {
    if (trained && !trained.lora) {
      const config = await this.#config(base.directory);
      this.#set(id, id, { config, layout: baseLayout(config), flat: trained.flat }, null);
      return;
    }
    const shared = await this.#base(base);
    const adapter = trained?.lora ? { ...trained.lora, flat: trained.flat, layout: adapterLayout(shared.config, trained.lora.rank) } : null;
    // Adapters of one rank share a batch. Another rank would widen the products, and with them change a row's last bits.
    this.#set(id, `rank ${adapter?.rank ?? 0} on ${base.directory}`, shared, adapter);
  }

  /** The same straight from a saved state. */
  async load(id: string, base: BaseSource, state: string | undefined): Promise<void> {
    if (state === undefined) return this.add(id, base, null);
    const config = await this.#config(base.directory);
    return this.add(id, base, await readAdapterOrWeights(state, base.id, config));
  }

  /** Lets no further request use a policy. */
  release(id: string): void {
    const policy = this.#policies.get(id);
    if (!policy) return;
    policy.isReleased = true;
    this.#forget(id, policy);
  }

  /**
   * A policy for one request, which gives it back by {@link giveBack}.
   *
   * @throws NotFoundError `E_NOT_FOUND` when it was released.
   */
  take(id: string): Policy {
    const policy = this.#policies.get(id);
    if (!policy || policy.isReleased) throw new NotFoundError(`The engine holds no policy "${id}"; it was released`);
    policy.users++;
    return policy;
  }

  /** Says that a request is done with its policy. */
  giveBack(id: string, policy: Policy): void {
    policy.users--;
    this.#forget(id, policy);
  }

  #set(id: string, batchKey: string, weights: Weights, adapter: LoadedAdapter | null): void {
    this.#policies.set(id, { batchKey, weights, adapter, users: 0, isReleased: false });
  }

  #forget(id: string, policy: Policy): void {
    if (!policy.isReleased || policy.users > 0 || !this.#policies.delete(id)) return;
    this.#onForgotten(policy);
  }

  /** One object per directory: programs and tables are keyed by it. */
  #config(directory: string): Promise<ModelConfig> {
    return remember(this.#configs, directory, () => readModelConfig(directory));
  }

  #base({ directory }: BaseSource): Promise<Weights> {
    return remember(this.#bases, directory, async (): Promise<Weights> => {
      const config = await this.#config(directory);
      const layout = baseLayout(config);
      return { config, layout, flat: await readBaseWeights(directory, layout) };
    });
  }
}

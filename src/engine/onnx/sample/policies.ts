/** Weights for sampling: bases, adapters on them, and models trained throughout, by policy id. */
import { NotFoundError } from "../../../errors.ts";
import { type Held, SharedValues } from "../../../util/shared-values.ts";
import type { ModelConfig } from "../model/config.ts";
import { readModelConfig } from "../model/config.ts";
import { type Adapter, adapterLayout, baseLayout, type Layout } from "../model/parameters.ts";
import { isLarge } from "../model/size.ts";
import { readAdapterOrWeights } from "../model/state.ts";
import { readBaseWeights } from "../model/weights.ts";
import type { BaseSource } from "../train/trainer.ts";
import type { LoadedAdapter } from "./adapters.ts";
import { turnMatrices } from "./turned.ts";

/** Weights that a batch runs on: a base as it is, under adapters, or trained throughout. */
export interface Weights {
  readonly config: ModelConfig;
  readonly layout: Layout;
  /** Matrices are turned where the model is large. */
  readonly flat: Float32Array;
}

/** Weights for sampling from weights as they are trained; takes them over. */
function forSampling(config: ModelConfig, flat: Float32Array): Weights {
  const layout = baseLayout(config);
  if (isLarge(config)) turnMatrices(flat, layout);
  return { config, layout, flat };
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
  /** Lets go of what it shares with other policies on its base. */
  readonly letGo: () => void;
}

/** See the file header. */
export class Policies {
  readonly #onForgotten: (policy: Policy) => void;
  /** One object per directory: programs and tables are keyed by it. */
  readonly #configs = new SharedValues<string, ModelConfig>();
  readonly #bases = new SharedValues<string, Weights>();
  readonly #policies = new Map<string, Policy>();

  /** @param onForgotten - Told of each policy that nobody can use any more. */
  constructor(onForgotten: (policy: Policy) => void) {
    this.#onForgotten = onForgotten;
  }

  /** Takes over trained weights, or an adapter's, under a new id; null = the base as it is. */
  async add(id: string, { directory }: BaseSource, trained: { flat: Float32Array; lora: Adapter | null } | null): Promise<void> {
    const config = await this.#config(directory);
    try {
      if (trained && !trained.lora) {
        const weights = forSampling(config.value, trained.flat);
        this.#set(id, { batchKey: id, weights, adapter: null, letGo: config.letGo });
        return;
      }
      const base = await this.#base(directory, config.value);
      const letGo = () => [base, config].forEach((held) => held.letGo());
      const adapter = trained?.lora
        ? { ...trained.lora, flat: trained.flat, layout: adapterLayout(config.value, trained.lora.rank) }
        : null;
      // Adapters of one rank share a batch. Another rank would widen the products, and with them change a row's last bits.
      this.#set(id, { batchKey: `rank ${adapter?.rank ?? 0} on ${directory}`, weights: base.value, adapter, letGo });
    } catch (error) {
      config.letGo();
      throw error;
    }
  }

  /** The same straight from a saved state. */
  async load(id: string, base: BaseSource, state: string | undefined): Promise<void> {
    if (state === undefined) return this.add(id, base, null);
    const config = await this.#config(base.directory);
    try {
      await this.add(id, base, await readAdapterOrWeights(state, base.id, config.value));
    } finally {
      config.letGo();
    }
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

  /** Whether a policy is left whose requests run in the batch. */
  hasBatch(batchKey: string): boolean {
    return [...this.#policies.values()].some((policy) => policy.batchKey === batchKey);
  }

  #set(id: string, policy: Omit<Policy, "users" | "isReleased">): void {
    this.#policies.set(id, { ...policy, users: 0, isReleased: false });
  }

  #forget(id: string, policy: Policy): void {
    if (!policy.isReleased || policy.users > 0 || !this.#policies.delete(id)) return;
    policy.letGo();
    this.#onForgotten(policy);
  }

  #config(directory: string): Promise<Held<ModelConfig>> {
    return this.#configs.hold(directory, () => readModelConfig(directory));
  }

  #base(directory: string, config: ModelConfig): Promise<Held<Weights>> {
    return this.#bases.hold(directory, async () => forSampling(config, await readBaseWeights(directory, baseLayout(config))));
  }
}

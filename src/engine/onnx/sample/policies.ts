/** Weights for sampling, by policy id: base models, adapters on them, and fully trained models. */
import { NotFoundError } from "../../../base/errors.ts";
import { loadingBase } from "../../base-failure.ts";
import { type Lease, Leases } from "../../../base/util/leases.ts";
import { type ModelConfig, readModelConfig, type BaseSource } from "../model/config.ts";
import type { Adapter } from "../model/parameters.ts";
import type { PlacedWeights, WeightsSource } from "./place.ts";

/** Weights published under an id, held until the policy is released and its last request has ended. */
export interface PublishedPolicy<W extends PlacedWeights = PlacedWeights, A extends Adapter = Adapter> {
  /** Batch key: requests with equal keys run in one batch. */
  readonly batchKey: string;
  readonly weights: W;
  readonly adapter: A | null;
  /** Number of running and waiting requests. */
  users: number;
  isReleased: boolean;
  /** Releases the data shared with other policies on the same base. */
  readonly release: () => void;
}

/** Policies of a sampler, with reference counts of their requests. */
export class PublishedPolicies<T extends { readonly lora: Adapter | null }, W extends PlacedWeights, A extends Adapter> {
  readonly #source: WeightsSource<T, W, A>;
  readonly #onForgotten: (policy: PublishedPolicy<W, A>) => void;
  /** Configurations, one object per directory: programs and tables are cached by object identity. */
  readonly #configs = new Leases<string, ModelConfig>();
  readonly #policies = new Map<string, PublishedPolicy<W, A>>();

  /** @param onForgotten - Called with each policy that no request can use any more. */
  constructor(source: WeightsSource<T, W, A>, onForgotten: (policy: PublishedPolicy<W, A>) => void) {
    this.#source = source;
    this.#onForgotten = onForgotten;
  }

  /** Adds trained weights, or an adapter's, under a new id and takes ownership of them; null = the base model unchanged. */
  async add(id: string, from: BaseSource, trained: T | null): Promise<void> {
    try {
      const config = await this.#config(from);
      try {
        this.#set(id, await this.#made(id, from, trained, config));
      } catch (error) {
        config.release();
        throw error;
      }
    } catch (error) {
      if (trained) this.#source.discard(trained);
      throw error;
    }
  }

  /** Makes a policy, which takes over the lease of the configuration. */
  async #made(
    id: string,
    { id: baseId, directory }: BaseSource,
    trained: T | null,
    config: Lease<ModelConfig>,
  ): Promise<Pick<PublishedPolicy<W, A>, "batchKey" | "weights" | "adapter" | "release">> {
    const source = this.#source;
    if (trained && !trained.lora) {
      const weights = await source.own(directory, config.value, trained);
      const release = () => {
        source.free(weights);
        config.release();
      };
      return { batchKey: id, weights, adapter: null, release };
    }
    const base = await loadingBase(baseId, () => source.base(directory, config.value));
    const adapter = trained?.lora ? source.adapter(config.value, trained, trained.lora) : null;
    const release = () => {
      if (adapter) source.free(adapter);
      base.release();
      config.release();
    };
    // Adapters of one rank share a batch. Another rank would widen the products and so change a row's last bits.
    return { batchKey: `rank ${adapter?.rank ?? 0} on ${directory}`, weights: base.value, adapter, release };
  }

  /** Adds a policy from a saved state on disk; undefined = the base model unchanged. */
  async load(id: string, base: BaseSource, state: string | undefined): Promise<void> {
    if (state === undefined) return this.add(id, base, null);
    const config = await this.#config(base);
    try {
      await this.add(id, base, await this.#source.read(state, base.id, config.value));
    } finally {
      config.release();
    }
  }

  /** Releases a policy: its requests continue, and no further request may use it. */
  release(id: string): void {
    const policy = this.#policies.get(id);
    if (!policy) return;
    policy.isReleased = true;
    this.#forget(id, policy);
  }

  /**
   * Acquires a policy for one request, to be released by {@link releaseUse}.
   *
   * @throws NotFoundError `E_NOT_FOUND` if the policy does not exist or was released.
   */
  acquire(id: string): PublishedPolicy<W, A> {
    const policy = this.#policies.get(id);
    if (!policy || policy.isReleased) throw new NotFoundError(`The engine holds no policy "${id}"; it was released`);
    policy.users++;
    return policy;
  }

  /** Releases the use of a policy by a request that has ended. */
  releaseUse(id: string, policy: PublishedPolicy<W, A>): void {
    policy.users--;
    this.#forget(id, policy);
  }

  /** Whether a policy with this batch key is left. */
  hasBatch(batchKey: string): boolean {
    return [...this.#policies.values()].some((policy) => policy.batchKey === batchKey);
  }

  #set(id: string, policy: Omit<PublishedPolicy<W, A>, "users" | "isReleased">): void {
    this.#policies.set(id, { ...policy, users: 0, isReleased: false });
  }

  /** Frees a policy that is released and whose last request has ended; otherwise does nothing. */
  #forget(id: string, policy: PublishedPolicy<W, A>): void {
    if (!policy.isReleased || policy.users > 0 || !this.#policies.delete(id)) return;
    policy.release();
    this.#onForgotten(policy);
  }

  #config({ id, directory }: BaseSource): Promise<Lease<ModelConfig>> {
    return loadingBase(id, () => this.#configs.lease(directory, () => readModelConfig(directory)));
  }
}

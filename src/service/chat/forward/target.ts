/** Resolution of the model that a request names to the model that the upstream samples: a base model, or the adapter of a checkpoint. */
import type { UpstreamPool } from "../../../engine/upstream/pool.ts";
import { rememberingFind, resolvedNameOf, type FoundCheckpoint } from "../../models/policies.ts";
import type { Store } from "../../store/tables.ts";
import type { Visibility } from "../../store/visibility.ts";

/** Model of a forwarded request. */
export interface Target {
  /** Name of the base model, or of the adapter, on the upstream. */
  readonly name: string;
  /** Identifier of the base model. */
  readonly base: string;
  /** Value of `model` in the response. */
  readonly resolvedName: string;
  /** Max tokens of prompt and output; null if the upstream does not report it. */
  readonly contextLength: number | null;
  /** Checkpoint of the adapter; null for a base model, which is always loaded on the upstream. */
  readonly adapter: FoundCheckpoint | null;
}

/** Options of {@link TargetResolver}. */
export interface TargetOptions {
  readonly upstream: UpstreamPool;
  readonly store: Store;
  /** Base model for requests that name no model. */
  readonly defaultBase: string;
}

/** Resolver of the models that an upstream samples. */
export class TargetResolver {
  readonly #options: TargetOptions;
  readonly #find: ReturnType<typeof rememberingFind>;

  constructor(options: TargetOptions) {
    this.#options = options;
    this.#find = rememberingFind(options.store);
  }

  /** Returns the model to request from the upstream; null if the model is sampled locally, where an invalid model is also rejected. */
  async resolve(model: unknown, visibility: Visibility): Promise<Target | null> {
    const { upstream, defaultBase } = this.#options;
    const id = model === undefined || model === null || model === "" ? defaultBase : model;
    if (typeof id !== "string") return null;
    if (upstream.baseModels.has(id)) {
      const mayUseBases = visibility.modelId === null;
      return mayUseBases ? this.#baseTarget(id, id) : null;
    }
    const found = await this.#find(id, [], visibility).catch(() => null);
    if (found === null) return null;
    const { model: row, checkpoint } = found;
    const base = this.#baseTarget(row.base_model, resolvedNameOf(id, found));
    // Step 0 is the base model itself: a new adapter changes nothing.
    if (base === null || checkpoint.state_dir === null) return base;
    const canLoadAdapter = upstream.options.adapters === true && row.lora !== null;
    return canLoadAdapter ? { ...base, name: `whetstone-${checkpoint.id}`, adapter: found } : null;
  }

  /** Returns a base model as the target of a request; null for a base model that the upstream does not have. */
  #baseTarget(base: string, resolvedName: string): Target | null {
    const { upstream } = this.#options;
    const name = upstream.baseModels.get(base);
    return name === undefined ? null : { name, base, resolvedName, contextLength: upstream.contextLengthOf(base), adapter: null };
  }
}

/**
 * Policies that requests sample: resolution of model names (`findCheckpoint`), and the leases that keep weights loaded (`Policies`). A policy
 * is a version of a model's weights that the engine has loaded for sampling.
 */
import { randomUUID } from "node:crypto";
import type { BaseModelInfo, CallOptions, Engine, PolicyVersion } from "../../engine/port.ts";
import { ForbiddenError, NotFoundError } from "../../base/errors.ts";
import type { BaseModels } from "./base-models.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { parsePolicyName, pathOf, stepName } from "../common/names.ts";
import { findAliased, isAlias } from "../store/aliases.ts";
import { checkpointAt, newestCheckpoint } from "../store/checkpoints.ts";
import { revisionOf } from "../store/database.ts";
import { findModel } from "../store/models.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import type { CheckpointRow, ModelRow, Store } from "../store/tables.ts";
import { visibleIn, type Visibility } from "../store/visibility.ts";
import { BASE_MODEL_FORMS } from "../../base/util/base-model.ts";
import { Leases } from "../../base/util/leases.ts";
import { Lru, remember } from "../../base/util/lru.ts";

/**
 * Lease of a policy for one request. The weights stay loaded until {@link PolicyLease.release}, even if the model is trained or deleted
 * meanwhile.
 */
export interface PolicyLease {
  /** Policy for `engine.sample`. */
  readonly policy: PolicyVersion;
  /** `model` of the response: `entity/project/name:stepN`, the requested alias of a checkpoint, or the identifier of a base model. */
  readonly resolvedName: string;
  /** Model of the checkpoint; null for a base model. */
  readonly model: ModelRow | null;
  /** Step of the checkpoint; null for a base model. */
  readonly step: number | null;
  /** Base model. Its `directory` holds the tokenizer and the chat template. */
  readonly base: BaseModelInfo;
  /** Ends the lease. Further calls have no effect. */
  release(): void;
}

/** Weights under a name that only their lender knows. */
export interface LentPolicy {
  /** Name of the weights in requests. */
  readonly name: string;
  /** Removes the name. */
  readonly end: () => void;
}

/** Resolver of model names in requests to loaded policies. */
export interface PolicyResolver {
  /**
   * Leases the policy that `name` currently stands for. Absent, null and empty mean the default base model.
   *
   * @param visibility - Models that the caller may see. A caller that may see one model alone may not sample base models.
   * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never created.
   * @throws ForbiddenError `E_FORBIDDEN` for a model of another entity, named as such.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` for a checkpoint with missing or damaged files.
   */
  resolvePolicy(name: string | null | undefined, visibility: Visibility, options?: CallOptions): Promise<PolicyLease>;
}

/** Options of {@link Policies}. */
export interface PoliciesOptions {
  readonly store: Store;
  readonly engine: Engine;
  readonly files: Pick<StoredFiles, "useCheckpoint">;
  readonly bases: Pick<BaseModels, "ids" | "servable" | "requireUsable">;
  /** Identifier of the base model used when a request names no model. */
  readonly defaultBase: string;
  /** Max policies without a lease that stay loaded. */
  readonly maxIdle: number;
  readonly logger: ServiceLogger;
}

/** Resolver that keeps policies loaded: leased ones, and the `maxIdle` most recently used ones without a lease. */
export class Policies implements PolicyResolver {
  readonly #options: PoliciesOptions;
  /** Finds the checkpoint of a name, see {@link rememberingFind}. */
  readonly #findCached: ReturnType<typeof rememberingFind>;
  /** Loaded policies by {@link keyOf}, and base models by {@link keyOfBase}. */
  readonly #leases: Leases<string, PolicyVersion>;
  /** Weights by the name that {@link lend} returned. */
  readonly #lent = new Map<string, Pick<PolicyLease, "policy" | "resolvedName">>();

  constructor(options: PoliciesOptions) {
    const { store, engine, maxIdle, logger } = options;
    this.#options = options;
    this.#findCached = rememberingFind(store);
    const dispose = (policy: PolicyVersion) => void engine.release(policy).catch(logFailure(logger, "A policy could not be released"));
    this.#leases = new Leases({ maxIdle, dispose });
  }

  async resolvePolicy(name: string | null | undefined, visibility: Visibility, { signal }: CallOptions = {}): Promise<PolicyLease> {
    const { engine, bases, defaultBase } = this.#options;
    signal?.throwIfAborted();
    if (name === null || name === undefined || name === "") return this.#leaseBase(defaultBase, visibility, signal);
    const lent = this.#lent.get(name);
    if (lent !== undefined) {
      const base = await engine.describeBase(lent.policy.base);
      // The lender releases the weights.
      return { ...lent, model: null, step: null, base, release: () => undefined };
    }
    const baseModel = isAlias(name) ? null : await bases.servable(name);
    if (baseModel !== null) return this.#leaseBase(baseModel, visibility, signal);
    return this.#leaseCheckpoint(name, await this.#findCached(name, bases.ids, visibility), signal);
  }

  /**
   * Makes published weights that belong to no checkpoint available to requests of the service itself.
   *
   * @param policy - Published weights, which the lender releases after the last request.
   * @param resolvedName - `model` of the responses.
   */
  lend(policy: PolicyVersion, resolvedName: string): LentPolicy {
    const name = `rollouts:${randomUUID()}`;
    this.#lent.set(name, { policy, resolvedName });
    return { name, end: () => void this.#lent.delete(name) };
  }

  /** Registers weights that the engine publishes as the policy of a checkpoint, so that they are not loaded from disk again. */
  adopt(checkpointId: string, policy: Promise<PolicyVersion>): void {
    const key = keyOf(checkpointId);
    this.#forgetLost(key);
    this.#leases.adopt(key, policy);
  }

  /** Drops the policies of deleted checkpoints. Requests that still lease one keep its weights until they end. */
  forget(checkpointIds: readonly string[]): void {
    for (const id of checkpointIds) this.#leases.forget(keyOf(id));
  }

  /** Whether a request currently leases the weights of a checkpoint. */
  isLeased(checkpointId: string): boolean {
    return this.#leases.isLeased(keyOf(checkpointId));
  }

  /** Leases the policy of a checkpoint that was found for `name`. */
  async #leaseCheckpoint(name: string, found: FoundCheckpoint, signal: AbortSignal | undefined): Promise<PolicyLease> {
    const { store, engine, files } = this.#options;
    const { model, checkpoint } = found;
    const base = await engine.describeBase(model.base_model);
    const loadFrom = (path: string) => engine.loadPolicy({ base: model.base_model, state: path });
    try {
      // Step 0 without a state is the base itself: a newly initialized adapter changes nothing.
      const lease =
        checkpoint.state_dir === null
          ? await this.#lease(keyOfBase(model.base_model), () => engine.loadPolicy({ base: model.base_model }), signal)
          : await this.#lease(keyOf(checkpoint.id), () => files.useCheckpoint(model, checkpoint, loadFrom), signal);
      return { ...lease, base, resolvedName: resolvedNameOf(name, found), model, step: checkpoint.step };
    } catch (error) {
      // The checkpoint may have been deleted while its files were read.
      if (!signal?.aborted && (await checkpointAt(store, model.id, checkpoint.step))?.id !== checkpoint.id)
        throw missingStepError(model, checkpoint.step, "model");
      throw error;
    }
  }

  /** Leases a base model. */
  async #leaseBase(id: string, { modelId }: Visibility, signal: AbortSignal | undefined): Promise<PolicyLease> {
    if (modelId !== null)
      throw new ForbiddenError(`The API key permits the model '${modelId}' alone, and no base model. Name that model in \`model\``, {
        param: "model",
      });
    const { engine, bases } = this.#options;
    const base = await engine.describeBase(id).catch((error: unknown) => {
      throw error instanceof NotFoundError ? new NotFoundError(error.message, { cause: error, param: "model" }) : error;
    });
    const load = async () => {
      // A base model that only this request names was never checked.
      if (!bases.ids.includes(id)) await bases.requireUsable(id, { readsWeights: false });
      return engine.loadPolicy({ base: id });
    };
    const lease = await this.#lease(keyOfBase(id), load, signal);
    return { ...lease, base, resolvedName: id, model: null, step: null };
  }

  /** Leases the policy with a key, and loads it if it is not loaded. */
  async #lease(
    key: string,
    load: () => Promise<PolicyVersion>,
    signal: AbortSignal | undefined,
  ): Promise<Pick<PolicyLease, "policy" | "release">> {
    this.#forgetLost(key);
    const { value: policy, release } = await this.#leases.lease(key, load, signal);
    return { policy, release };
  }

  /** Forgets a policy whose weights the engine has lost, so that they are loaded again. */
  #forgetLost(key: string): void {
    const policy = this.#leases.peek(key);
    if (policy !== undefined && this.#options.engine.holds?.(policy) === false) this.#leases.forget(key);
  }
}

/** Returns the key of a checkpoint's policy among the leases. */
function keyOf(checkpointId: string): string {
  return `checkpoint:${checkpointId}`;
}

/** Returns the key of a base model among the leases. */
function keyOfBase(id: string): string {
  return `base:${id}`;
}

/** Returns the error for a step that does not exist; for a model without checkpoints, `step` is null. */
function missingStepError(model: ModelRow, step: number | null, param: string): NotFoundError {
  const problem =
    step === null
      ? `Model '${pathOf(model)}' has no checkpoint: all were deleted`
      : `Model '${stepName(model, step)}' does not exist: step ${step} was deleted or never made`;
  return new NotFoundError(`${problem}. List the checkpoints with GET /v1/preview/models/${model.id}/checkpoints`, { param });
}

/** Model and checkpoint found for a name. */
export interface FoundCheckpoint {
  readonly model: ModelRow;
  readonly checkpoint: CheckpointRow;
}

/** Returns the `model` of responses to requests that name a checkpoint: the name itself if it is an alias, which always means the same. */
export function resolvedNameOf(name: string, { model, checkpoint }: FoundCheckpoint): string {
  return isAlias(name) ? name : stepName(model, checkpoint.step);
}

/**
 * Returns a variant of {@link findCheckpoint} with a cache. Results are reused until the store changes, because one training step sends
 * hundreds of requests with the same name. `bases` are listed in the error message; `visibility` limits the models to the ones that the
 * caller may see.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never created.
 */
export function rememberingFind(
  store: Store,
): (name: string, bases: readonly string[], visibility: Visibility) => Promise<FoundCheckpoint> {
  const results = new Lru<string, Promise<FoundCheckpoint>>();
  let revision = -1;
  return (name, bases, visibility) => {
    const currentRevision = revisionOf(store);
    if (currentRevision !== revision) void results.clear();
    revision = currentRevision;
    const { entity, modelId } = visibility;
    // No other visibility has the same key, because names of entities and ids of models have no spaces.
    const key = `${entity ?? ""} ${modelId ?? ""} ${name}`;
    return remember(results, key, () => findCheckpoint(visibleIn(store, visibility), name, { bases, param: "model" }));
  };
}

/**
 * Finds the checkpoint that a model name in a request currently stands for.
 *
 * @param name - Name as {@link parsePolicyName} accepts it, or an alias of a checkpoint.
 * @param options - `bases`: base models listed in the error message; `param`: request field named in the error.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never created.
 * @throws ForbiddenError `E_FORBIDDEN` for a model of another entity than the caller's, named as such.
 */
export async function findCheckpoint(
  store: Store,
  name: string,
  { bases, param }: { readonly bases: readonly string[]; readonly param: string },
): Promise<FoundCheckpoint> {
  const aliased = await findAliased(store, name);
  if (aliased !== undefined) return aliased;
  const parsed = isAlias(name) ? null : parsePolicyName(name);
  let model: ModelRow | undefined;
  if (parsed?.kind === "id") model = await store.selectFrom("models").selectAll().where("id", "=", parsed.id).executeTakeFirst();
  else if (parsed?.kind === "path") model = await findModel(store, parsed, param);
  if (parsed === null || model === undefined) {
    const expected = `a base model (${bases.join(", ")}; ${BASE_MODEL_FORMS}, of the hub one that was fetched before), 'entity/project/name' with an optional ':stepN', or the name of a fine-tuned model, 'ft:…'`;
    throw new NotFoundError(`The model '${name.slice(0, 300)}' does not exist. Expected ${expected}; GET /v1/models lists what is served`, {
      param,
    });
  }
  const checkpoint = parsed.step === null ? await newestCheckpoint(store, model.id) : await checkpointAt(store, model.id, parsed.step);
  if (checkpoint === undefined) throw missingStepError(model, parsed.step, param);
  return { model, checkpoint };
}

import type { BaseModelInfo, CallOptions, Engine, PolicyVersion } from "../engine/port.ts";
import { NotFoundError } from "../errors.ts";
import type { ServiceLogger } from "./logger.ts";
import { parsePolicyName, pathOf, stepName } from "./names.ts";
import { checkpointAt, newestCheckpoint } from "./store/checkpoints.ts";
import { revisionOf } from "./store/database.ts";
import { findModel } from "./store/models.ts";
import type { StoredFiles } from "./stored-files/stored-files.ts";
import type { CheckpointRow, ModelRow, Store } from "./store/tables.ts";
import { messageOf } from "./error-text.ts";
import { remember } from "../util/remember.ts";

/**
 * Lease of a policy for one request. The weights stay loaded until {@link PolicyLease.release}, even if the model is trained or deleted
 * meanwhile.
 */
export interface PolicyLease {
  /** Policy for `engine.sample`. */
  readonly policy: PolicyVersion;
  /** `model` of the response: `entity/project/name:stepN`, or the identifier of a base model. */
  readonly resolvedName: string;
  /** Step of the checkpoint; null for a base model. */
  readonly step: number | null;
  /** Base model. Its `directory` holds the tokenizer and the chat template. */
  readonly base: BaseModelInfo;
  /** Ends the lease. Further calls have no effect. */
  release(): void;
}

/** Resolver of model names in requests to loaded policies. */
export interface PolicyResolver {
  /**
   * Leases the policy that `name` currently stands for. Absent, null and empty mean the default base model.
   *
   * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never created.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` for a checkpoint with missing or damaged files.
   */
  resolvePolicy(name: string | null | undefined, options?: CallOptions): Promise<PolicyLease>;
}

/** Options of {@link createPolicies}. */
export interface PoliciesOptions {
  readonly store: Store;
  readonly engine: Engine;
  readonly files: Pick<StoredFiles, "useCheckpoint">;
  /** Identifier of the base model used when a request names no model. */
  readonly defaultBase: string;
  /** Max policies without a lease that stay loaded. */
  readonly maxIdle: number;
  readonly logger: ServiceLogger;
}

/** Policy resolver with the methods that the job runner calls. */
export interface Policies extends PolicyResolver {
  /** Registers weights that the engine publishes as the policy of a checkpoint, so that they are not loaded from disk again. */
  adopt(checkpointId: string, policy: Promise<PolicyVersion>): void;
  /** Drops the policies of deleted checkpoints. Running requests keep their weights. */
  forget(checkpointIds: readonly string[]): void;
  /** Whether a request currently leases the weights of a checkpoint. */
  isLeased(checkpointId: string): boolean;
}

interface Entry {
  readonly policy: Promise<PolicyVersion>;
  /** Policy after loading; null while it loads. */
  loaded: PolicyVersion | null;
  leases: number;
  isForgotten: boolean;
}

/** Creates a policy cache. Leased policies stay loaded, and the `maxIdle` most recently used policies without a lease. */
export function createPolicies({ store, engine, files, defaultBase, maxIdle, logger }: PoliciesOptions): Policies {
  const findOnce = rememberingFind(store);
  // Ordered by last use, oldest first.
  const entries = new Map<string, Entry>();

  function discard(entry: Entry): void {
    entry.policy
      .then((policy) => engine.release(policy))
      .catch((error: unknown) => logger.warn("A policy could not be released", { error: messageOf(error) }));
  }
  function evict(): void {
    const idle = [...entries].filter(([, entry]) => entry.leases === 0);
    for (const [key, entry] of idle.slice(0, Math.max(0, idle.length - maxIdle))) {
      entries.delete(key);
      discard(entry);
    }
  }
  function add(key: string, policy: Promise<PolicyVersion>): Entry {
    const entry: Entry = { policy, loaded: null, leases: 0, isForgotten: false };
    entries.set(key, entry);
    policy.then(
      (loaded) => (entry.loaded = loaded),
      () => {
        // A failed load is removed, so that the next request retries.
        if (entries.get(key) === entry) entries.delete(key);
      },
    );
    return entry;
  }
  /** Returns the entry of a key. If the engine has lost the weights, drops the entry, so that they are loaded again. */
  function find(key: string): Entry | undefined {
    const entry = entries.get(key);
    if (entry === undefined || entry.loaded === null || engine.holds?.(entry.loaded) !== false) return entry;
    drop(key, entry);
    return undefined;
  }
  function drop(key: string, entry: Entry): void {
    entries.delete(key);
    entry.isForgotten = true;
    if (entry.leases === 0) discard(entry);
  }
  async function lease(
    key: string,
    load: () => Promise<PolicyVersion>,
    signal: AbortSignal | undefined,
  ): Promise<{ policy: PolicyVersion; release: () => void }> {
    const entry = find(key) ?? add(key, load());
    entries.delete(key);
    entries.set(key, entry);
    entry.leases++;
    let isHeld = true;
    const release = () => {
      if (!isHeld) return;
      isHeld = false;
      entry.leases--;
      if (entry.isForgotten) {
        if (entry.leases === 0) discard(entry);
      } else evict();
    };
    try {
      // Requests share the load, so aborting one request only ends its own wait.
      return { policy: await abortable(entry.policy, signal), release };
    } catch (error) {
      release();
      throw error;
    }
  }
  async function leaseBase(id: string, signal: AbortSignal | undefined): Promise<PolicyLease> {
    const base = await engine.describeBase(id);
    const held = await lease(`base:${id}`, () => engine.loadPolicy({ base: id }), signal);
    return { ...held, base, resolvedName: id, step: null };
  }

  return {
    async resolvePolicy(name, { signal } = {}) {
      signal?.throwIfAborted();
      if (name === null || name === undefined || name === "") return leaseBase(defaultBase, signal);
      if (engine.capabilities().baseModels.includes(name)) return leaseBase(name, signal);
      const { model, checkpoint } = await findOnce(name, engine.capabilities().baseModels);
      const base = await engine.describeBase(model.base_model);
      try {
        // Step 0 without a state is the base itself: a newly initialized adapter changes nothing.
        const held =
          checkpoint.state_dir === null
            ? await lease(`base:${model.base_model}`, () => engine.loadPolicy({ base: model.base_model }), signal)
            : await lease(
                `checkpoint:${checkpoint.id}`,
                () => files.useCheckpoint(model, checkpoint, (path) => engine.loadPolicy({ base: model.base_model, state: path })),
                signal,
              );
        return { ...held, base, resolvedName: stepName(model, checkpoint.step), step: checkpoint.step };
      } catch (error) {
        // The checkpoint may have been deleted while its files were read.
        if (!signal?.aborted && (await checkpointAt(store, model.id, checkpoint.step))?.id !== checkpoint.id)
          throw missingStep(model, checkpoint.step, "model");
        throw error;
      }
    },
    adopt(checkpointId, policy) {
      const key = `checkpoint:${checkpointId}`;
      if (find(key) !== undefined) {
        // A request already loaded the same weights from disk.
        discard({ policy, loaded: null, leases: 0, isForgotten: true });
        return;
      }
      add(key, policy);
      evict();
    },
    forget(checkpointIds) {
      for (const id of checkpointIds) {
        const key = `checkpoint:${id}`;
        const entry = entries.get(key);
        if (entry !== undefined) drop(key, entry);
      }
    },
    isLeased: (checkpointId) => (entries.get(`checkpoint:${checkpointId}`)?.leases ?? 0) > 0,
  };
}

function missingStep(model: ModelRow, step: number | null, param: string): NotFoundError {
  const what =
    step === null
      ? `Model '${pathOf(model)}' has no checkpoint: all were deleted`
      : `Model '${stepName(model, step)}' does not exist: step ${step} was deleted or never made`;
  return new NotFoundError(`${what}. List the checkpoints with GET /v1/preview/models/${model.id}/checkpoints`, { param });
}

/** Model and checkpoint found for a name. */
export interface FoundCheckpoint {
  readonly model: ModelRow;
  readonly checkpoint: CheckpointRow;
}

/**
 * Returns a cached {@link findCheckpoint}. Results are reused until the store changes, because one training step sends hundreds of requests
 * with the same name. `bases` are listed in the error message.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never created.
 */
export function rememberingFind(store: Store): (name: string, bases: readonly string[]) => Promise<FoundCheckpoint> {
  const known = new Map<string, Promise<FoundCheckpoint>>();
  let revision = -1;
  return (name, bases) => {
    const now = revisionOf(store);
    if (now !== revision) known.clear();
    revision = now;
    return remember(known, name, () => findCheckpoint(store, name, { bases, param: "model" }));
  };
}

/**
 * Finds the checkpoint that a model name in a request currently stands for.
 *
 * @param name - Name as {@link parsePolicyName} accepts it.
 * @param options - `bases`: base models listed in the error message; `param`: request field named in the error.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never created.
 */
export async function findCheckpoint(
  store: Store,
  name: string,
  { bases, param }: { readonly bases: readonly string[]; readonly param: string },
): Promise<FoundCheckpoint> {
  const parsed = parsePolicyName(name);
  const model =
    parsed === null
      ? undefined
      : parsed.kind === "id"
        ? await store.selectFrom("models").selectAll().where("id", "=", parsed.id).executeTakeFirst()
        : await findModel(store, parsed);
  if (parsed === null || model === undefined) {
    const expected = `a base model (${bases.join(", ")}), or 'entity/project/name' with an optional ':stepN'`;
    throw new NotFoundError(`The model '${name.slice(0, 300)}' does not exist. Expected ${expected}; GET /v1/models lists what is served`, {
      param,
    });
  }
  const checkpoint = parsed.step === null ? await newestCheckpoint(store, model.id) : await checkpointAt(store, model.id, parsed.step);
  if (checkpoint === undefined) throw missingStep(model, parsed.step, param);
  return { model, checkpoint };
}

/** Resolves like `promise`, or rejects with the signal's reason if the signal aborts first. Always removes the abort listener. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

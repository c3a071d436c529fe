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

/** Weights held for one request: they stay loaded until {@link PolicyLease.release}, whatever is trained or deleted meanwhile. */
export interface PolicyLease {
  /** What `engine.sample` takes. */
  readonly policy: PolicyVersion;
  /** `entity/project/name:stepN`, or the identifier of a base model: the `model` of a response. */
  readonly resolvedName: string;
  /** Step of the checkpoint; null for a base model. */
  readonly step: number | null;
  /** Tokenizer and chat template are read from `base.directory`. */
  readonly base: BaseModelInfo;
  /** Gives the weights back; calling it twice is harmless. */
  release(): void;
}

/** From a name on the wire to weights. */
export interface PolicyResolver {
  /**
   * The policy that `name` stands for at this moment. Absent, null and empty mean the shipped base model.
   *
   * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never made.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` for a checkpoint whose files are missing or damaged.
   */
  resolvePolicy(name: string | null | undefined, options?: CallOptions): Promise<PolicyLease>;
}

/** Options of {@link createPolicies}. */
export interface PoliciesOptions {
  readonly store: Store;
  readonly engine: Engine;
  readonly files: Pick<StoredFiles, "useCheckpoint">;
  /** The base that an absent name stands for. */
  readonly defaultBase: string;
  /** Policies that stay loaded while nobody uses them. */
  readonly maxIdle: number;
  readonly logger: ServiceLogger;
}

/** The resolver, and what the job runner tells it. */
export interface Policies extends PolicyResolver {
  /** Makes weights that the engine publishes the policy of a checkpoint, so that they are not loaded from disk again. */
  adopt(checkpointId: string, policy: Promise<PolicyVersion>): void;
  /** Forgets deleted checkpoints; running requests keep their weights. */
  forget(checkpointIds: readonly string[]): void;
  /** Whether a request holds the weights of a checkpoint now. */
  isLeased(checkpointId: string): boolean;
}

interface Entry {
  readonly policy: Promise<PolicyVersion>;
  /** The policy, once it is loaded. */
  loaded: PolicyVersion | null;
  leases: number;
  isForgotten: boolean;
}

/** Resolves names and keeps what was used last loaded. */
export function createPolicies({ store, engine, files, defaultBase, maxIdle, logger }: PoliciesOptions): Policies {
  const findOnce = rememberingFind(store);
  // In the order of use, oldest first.
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
        // A load that failed must not be remembered: the next request tries again.
        if (entries.get(key) === entry) entries.delete(key);
      },
    );
    return entry;
  }
  /** The entry of a key; one whose weights the engine has lost is dropped, so that they are loaded again. */
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
      // The load itself is shared, so one caller's abort ends that caller's wait alone.
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
        // Without a state step 0 is the base itself: a fresh adapter changes nothing.
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
        // A request was faster and loaded it from disk; both are the same weights.
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

/** What a name stood for when it was last looked up. */
export interface FoundCheckpoint {
  readonly model: ModelRow;
  readonly checkpoint: CheckpointRow;
}

/**
 * Finds the checkpoint that a name stands for at this moment, once for all requests between two changes of the store: the rollouts
 * of a step come by the hundred. `bases` are named in the message of a failure.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never made.
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
 * The checkpoint that a name on the wire stands for at this moment.
 *
 * @param options - `bases`: what else there is, and `param`: the request's field, both for the message.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model, and for a step that was deleted or never made.
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

/** `promise`, or the signal's own reason if it comes first. The listener is gone either way. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) return onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

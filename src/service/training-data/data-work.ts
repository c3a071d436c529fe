/**
 * Processing of training data: small inputs on the serving thread, large ones on a work thread. Both run the same functions, so the result
 * does not depend on the thread.
 */
import type { RlBatch } from "../../learner/index.ts";
import { Lru } from "../../base/util/lru.ts";
import { SMALL_JSON_BYTES } from "../http/body-reader.ts";
import type { SharedTokenizers, TokenizerTasks } from "../models/shared-tokenizers.ts";
import { ownBuffer } from "../work/own-buffer.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import { exampleBytes, readExampleData, type ExampleData, type ExampleSource } from "./example-data.ts";
import { groupsBytes } from "./job-files.ts";
import { unpackExamples } from "./packed-examples.ts";
import {
  acceptGroups,
  batchBuffers,
  batchOf,
  checkOutcome,
  readRlRequest,
  type AcceptedGroups,
  type CheckedOutcome,
  type RlHead,
  type RlJobPlan,
} from "./rl-request.ts";
import type { DataTasks } from "./tasks.ts";

/** Parsed RL request without its groups, which stay on the thread that parsed them. */
export interface OpenRlRequest {
  readonly head: RlHead;
  /** Validates and stores the groups; see `acceptGroups`. Keeps the batch for {@link DataWork.rlBatch}. */
  readonly accept: (plan: RlJobPlan) => Promise<Omit<AcceptedGroups, "batch">>;
}

/** Key of a stored rollout in an RL request. The trajectories of a small request with this key may be large. */
const STORED_ROLLOUT_KEY = '"stored_rollout"';
/** Max bytes of batches kept between the acceptance of their jobs and the start. */
const MAX_BATCH_BYTES = 64 * 1024 * 1024;

/** Work thread with the tasks of training data. */
type DataThread = TaskThread<DataTasks & TokenizerTasks>;

/** Runs the slow steps of training data, on the serving thread or a work thread depending on the size of the input. */
export class DataWork {
  readonly #pool: WorkPool;
  readonly #tokenizers: SharedTokenizers;
  /** Batches of accepted jobs that have not started, by job id. Others are built again from the job's file. */
  readonly #batches = new Lru<string, RlBatch>({ maxWeight: MAX_BATCH_BYTES });
  /** Number of RL requests that work threads have opened; the identifier of the next one. */
  #openedRequests = 0;

  constructor(pool: WorkPool, tokenizers: SharedTokenizers) {
    this.#pool = pool;
    this.#tokenizers = tokenizers;
  }

  /** Parses the body of an RL job and calls `use` with the result. Transfers the buffer of `bytes`. */
  async withRlRequest<T>(bytes: Uint8Array, use: (request: OpenRlRequest) => Promise<T>, signal?: AbortSignal): Promise<T> {
    // A large body is not searched: that would delay other requests.
    const isForThread =
      bytes.length > SMALL_JSON_BYTES || Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).includes(STORED_ROLLOUT_KEY);
    if (isForThread) return this.#withRlRequestOnThread(bytes, use, signal);
    const { head, groups } = await readRlRequest(bytes);
    const accept = async (plan: RlJobPlan) => this.#cacheBatch(plan, await acceptGroups(groups, plan, this.#tokenizers.source));
    return use({ head, accept });
  }

  /** As {@link withRlRequest}, on one work thread for the whole time: its groups stay there from `openRl` to `closeRl`. */
  async #withRlRequestOnThread<T>(bytes: Uint8Array, use: (request: OpenRlRequest) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const buffer = ownBuffer(bytes);
    const id = this.#openedRequests++;
    return this.#pool.use(async (thread: DataThread) => {
      const head = await thread.run("openRl", { id, bytes: new Uint8Array(buffer) }, { transfer: [buffer], signal });
      const accept = async (plan: RlJobPlan) => {
        await this.#tokenizers.share(thread, plan.base.directory);
        return this.#cacheBatch(plan, await thread.run("acceptRl", { id, plan }));
      };
      try {
        return await use({ head, accept });
      } finally {
        // Fails if the thread has ended, and the groups with it.
        await thread.run("closeRl", id).catch(() => undefined);
      }
    }, signal);
  }

  /** Caches the batch of accepted groups, and returns the rest of the result. */
  #cacheBatch({ jobId }: RlJobPlan, { batch, ...accepted }: AcceptedGroups): Omit<AcceptedGroups, "batch"> {
    const bytes = batchBuffers(batch).reduce((sum, { byteLength }) => sum + byteLength, 0);
    this.#batches.set(jobId, batch, bytes);
    return accepted;
  }

  /** Frees the batch of a job that was not created, or has ended before it started. */
  forget(jobId: string): void {
    this.#batches.delete(jobId);
  }

  /** Returns the training batch of an accepted job: the first time from memory if it is cached, else built from the job's file. */
  async rlBatch(plan: Omit<RlJobPlan, "rollouts">, signal: AbortSignal): Promise<RlBatch> {
    const cached = this.#batches.peek(plan.jobId);
    this.#batches.delete(plan.jobId);
    if (cached !== undefined) return cached;
    if ((await groupsBytes(plan.directory, plan.jobId)) <= SMALL_JSON_BYTES) return batchOf(plan, this.#tokenizers.source, signal);
    return this.#pool.use(async (thread: DataThread) => {
      await this.#tokenizers.share(thread, plan.base.directory);
      return thread.run("rlBatch", plan, { signal });
    }, signal);
  }

  /** Validates the outcome of a rollout task; see `checkOutcome` of `rl-request.ts`. Transfers the buffer of `bytes`. */
  async checkOutcome(bytes: Uint8Array): Promise<CheckedOutcome> {
    if (bytes.length <= SMALL_JSON_BYTES) return checkOutcome(bytes);
    const buffer = ownBuffer(bytes);
    return this.#pool.use((thread: DataThread) => thread.run("checkOutcome", new Uint8Array(buffer), { transfer: [buffer] }));
  }

  /** Reads training data; see `readExampleData`. */
  async examples(source: ExampleSource, signal?: AbortSignal): Promise<ExampleData> {
    if (exampleBytes(source) <= SMALL_JSON_BYTES)
      return readExampleData(source, { tokenizer: await this.#tokenizers.source(source.base.directory), signal });
    const packed = await this.#pool.use(async (thread: DataThread) => {
      await this.#tokenizers.share(thread, source.base.directory);
      return thread.run("examples", source, { signal });
    }, signal);
    return unpackExamples(packed);
  }
}

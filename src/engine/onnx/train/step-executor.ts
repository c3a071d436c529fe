/**
 * Execution of a step's batches: on one thread, or for a small model in two data-parallel halves on two threads. The thread count is chosen
 * by timing the first steps. Results are bit-identical for every choice.
 */
import type { LossSpec, Row, ThreadReport } from "../../port.ts";
import { isLarge } from "../model/size.ts";
import { batchThreads, type TrainBatch, positionsIn } from "./batch.ts";
import type { BatchResult } from "./batch-inputs.ts";
import type { BatchModel } from "./batch-runner.ts";
import { addTo, splitInHalves } from "./halves.ts";
import { Runners } from "./runners.ts";
import { distinctCandidates, ThreadChoice } from "./thread-choice.ts";
import { zip } from "../../../base/util/values.ts";

/**
 * Max padded tokens in a small model's batch of rows that share nothing. Two such batches may be in memory at once, so the halves of a step
 * with a longer row run one after the other.
 */
export const MAX_HALF_BATCH_TOKENS = 512;

/**
 * Milliseconds without a step after which the graphs of a large model are freed, with the memory of their largest runs, and the weights of
 * its base: the rollouts between two RL steps need it more. Compiling and reading them again takes a few percent of a step.
 */
const IDLE_MS = 5_000;

/** Model of a step, and the accumulators that its gradients are added to. */
export interface StepModel extends BatchModel {
  readonly id: string;
  /** Version of the parameters, incremented with every change. */
  readonly version: number;
  readonly gradients: Float32Array;
}

/** Batches to compute with a model. */
export interface Step {
  readonly model: StepModel;
  readonly rows: readonly Row[];
  readonly batches: readonly TrainBatch[];
  /** Loss whose gradients are added to the model's; null to compute log-probabilities only. */
  readonly loss: LossSpec | null;
  readonly signal: AbortSignal;
}

/** Results of one half of a step that the helper thread computed. */
export interface HalfResult {
  /** Results, one per batch of the half. */
  readonly results: readonly BatchResult[];
  /** Sum of the gradients of the half; null without a loss. */
  readonly gradients: Float32Array | null;
}

/** Helper thread, which computes one half of a step. */
export interface StepHelper {
  /** Number of programs compiled so far. */
  readonly compiled: number;
  /** Computes a step on its own accumulators. @param threads - Threads inside one op. */
  run(step: Step, threads: number): Promise<HalfResult>;
  /** Keeps the gradient memory of a result, whose gradients were added, for the next step. */
  reuse(modelId: string, memory: Float32Array): void;
  /** Releases a model. */
  forget(modelId: string): Promise<void>;
  /** Keeps the programs of these thread counts and releases all others. With an empty set, also releases all models. */
  keep(threads: ReadonlySet<number>): Promise<void>;
}

/** Starts a helper thread. @param onDeath - Called once if the thread dies. */
export type StartHelper = (onDeath: () => void) => StepHelper;

/** Calls `compute` for a batch with the number of threads inside one op, which it chooses, and may time the call. */
type Schedule = <T>(batch: TrainBatch, compute: (threads: number) => Promise<T>) => Promise<T>;

/** Kind of steps that share one thread choice. */
interface StepKind {
  /** Whether the two halves may run in parallel. */
  readonly isSideBySide: boolean;
  readonly choice: ThreadChoice;
}

/** Executes steps one after the other; must not be called concurrently, because programs are released between steps. */
export class StepExecutor {
  readonly #candidates: readonly number[];
  readonly #startHelper: StartHelper | undefined;
  readonly #runners = new Runners();
  readonly #kinds = new Map<string, StepKind>();
  #helper: StepHelper | undefined;
  #idle: NodeJS.Timeout | undefined;

  /**
   * @param candidates - Total thread counts to choose from; a single one is used without timing.
   * @param startHelper - Starts the helper thread when a step first needs one, and again after its death; undefined to run both halves on
   *   the calling thread.
   */
  constructor(candidates: readonly number[], startHelper: StartHelper | undefined) {
    this.#candidates = candidates;
    this.#startHelper = startHelper;
  }

  /** Largest candidate. */
  get maxThreads(): number {
    return Math.max(...this.#candidates);
  }

  /**
   * Computes all batches and adds their gradients to the model's. Gradients are summed within each half and then over the halves.
   *
   * @throws the signal's reason if it aborts between two batches, and any error of a batch. Gradients of some batches may have been added.
   */
  async run(step: Step): Promise<{ readonly results: ReadonlyMap<TrainBatch, BatchResult>; readonly threads: ThreadReport }> {
    clearTimeout(this.#idle);
    try {
      return await this.#compute(step);
    } finally {
      if (isLarge(step.model.base.config)) this.#idle = setTimeout(() => this.freeIdle(step.model), IDLE_MS).unref();
    }
  }

  async #compute(step: Step): Promise<{ readonly results: ReadonlyMap<TrainBatch, BatchResult>; readonly threads: ThreadReport }> {
    const { model, batches, loss } = step;
    const halves = isLarge(model.base.config) ? ([batches, []] as const) : splitInHalves(batches);
    const kind = this.#kindOf(model, this.#canRunSideBySide(halves));
    const results = kind.isSideBySide
      ? // The whole step is timed.
        await this.#timed(kind, loss && batches, (threads) =>
          threads === 1 ? this.#runInTurn(step, halves, (_, compute) => compute(1)) : this.#runSideBySide(step, halves, threads),
        )
      : // Each batch is timed.
        await this.#runInTurn(step, halves, (batch, compute) => this.#timed(kind, loss && [batch], compute));
    return {
      results: new Map(zip(halves, results).flatMap(([half, ofHalf]) => zip(half, ofHalf))),
      threads: kind.choice.report,
    };
  }

  /**
   * Frees all compiled graphs with the memory of their largest runs, and the weights of a model's base if they can be read again; not to be
   * called during a step.
   */
  freeIdle({ base }: BatchModel): void {
    clearTimeout(this.#idle);
    this.#runners.keep(new Set());
    base.weights.free();
  }

  /** Releases what the helper thread holds of a model. */
  async forget(modelId: string): Promise<void> {
    await this.#helper?.forget(modelId);
  }

  /** Whether two threads may compute the halves of a step at the same time. */
  #canRunSideBySide([first, second]: readonly [readonly TrainBatch[], readonly TrainBatch[]]): boolean {
    const longest = Math.max(...[...first, ...second].map(({ prompts, packedRows }) => Math.max(prompts?.time ?? 0, packedRows.time)));
    // A batch on one thread has no threads to divide.
    const hasThreads = [...first, ...second].every((batch) => batchThreads(batch, this.maxThreads) === this.maxThreads);
    return this.#startHelper !== undefined && second.length > 0 && hasThreads && longest <= MAX_HALF_BATCH_TOKENS;
  }

  /** Computes both halves on the calling thread. */
  async #runInTurn(
    step: Step,
    [first, second]: readonly [readonly TrainBatch[], readonly TrainBatch[]],
    schedule: Schedule,
  ): Promise<readonly BatchResult[][]> {
    const gradients = step.loss && step.model.gradients;
    const own = await this.#runBatches(step, first, gradients, schedule);
    const sum = gradients && second.length > 0 ? new Float32Array(gradients.length) : null;
    const others = await this.#runBatches(step, second, sum, schedule);
    if (gradients && sum) addTo(gradients, sum);
    return [own, others];
  }

  /** Computes the first half on the calling thread and the second on the helper thread, with half of the threads each. */
  async #runSideBySide(
    step: Step,
    [first, second]: readonly [readonly TrainBatch[], readonly TrainBatch[]],
    threads: number,
  ): Promise<readonly (readonly BatchResult[])[]> {
    const { model, loss } = step;
    const gradients = loss && model.gradients;
    const threadsPerHalf = halfOf(threads);
    const helper = (this.#helper ??= this.#startHelper!(() => (this.#helper = undefined)));
    const other = helper.run({ ...step, batches: second }, threadsPerHalf);
    // Waits for both halves even if one fails, so that nothing is added after the caller restores the gradients.
    const [mine, theirs] = await Promise.allSettled([
      this.#runBatches(step, first, gradients, (_, compute) => compute(threadsPerHalf)),
      other,
    ]);
    if (mine.status === "rejected") throw mine.reason;
    if (theirs.status === "rejected") throw theirs.reason;
    const { results, gradients: sum } = theirs.value;
    if (gradients && sum) {
      addTo(gradients, sum);
      helper.reuse(model.id, sum);
    }
    return [mine.value, results];
  }

  /** Computes batches one after the other and adds their gradients to `gradients`. */
  async #runBatches(
    { model, rows, loss, signal }: Step,
    batches: readonly TrainBatch[],
    gradients: Float32Array | null,
    schedule: Schedule,
  ): Promise<BatchResult[]> {
    const results: BatchResult[] = [];
    for (const batch of batches) {
      signal.throwIfAborted();
      results.push(
        await schedule(batch, (threads) => this.#runners.of(batchThreads(batch, threads)).run(model, rows, batch, loss, gradients)),
      );
      // Yields to the event loop so that an abort message is received.
      await new Promise(setImmediate);
    }
    return results;
  }

  /** Returns the kind of a step, given by the model's shape, the adapter's rank if any, and whether its halves run in parallel. */
  #kindOf({ base, lora }: BatchModel, isSideBySide: boolean): StepKind {
    const key = JSON.stringify([base.config, lora?.rank ?? null, isSideBySide]);
    // The products of a large model use all threads, and a trial of fewer would compile its graphs again.
    const candidates = isLarge(base.config) ? [this.maxThreads] : distinctCandidates(this.#candidates, isSideBySide);
    const kind = this.#kinds.get(key) ?? { isSideBySide, choice: new ThreadChoice(candidates) };
    this.#kinds.set(key, kind);
    return kind;
  }

  /**
   * Runs `compute` with the kind's current thread count. Times the run until the choice is settled.
   *
   * @param batches - Batches computed, gradients included; null if the run must not be timed.
   */
  async #timed<T>({ choice }: StepKind, batches: readonly TrainBatch[] | null, compute: (threads: number) => Promise<T>): Promise<T> {
    const computed = batches?.filter(({ groups }) => groups.some(({ trained }) => trained > 0)) ?? [];
    if (choice.isSettled || computed.length === 0) return compute(choice.best);
    const threads = choice.current;
    const compiled = this.#compiled;
    const startMs = performance.now();
    const result = await compute(threads);
    const ms = performance.now() - startMs;
    const tokens = computed.reduce((sum, batch) => sum + positionsIn(batch), 0);
    choice.record({ tokens, ms, hasCompiled: this.#compiled > compiled });
    if (choice.current !== threads || choice.isSettled) await this.#releasePrograms();
    return result;
  }

  get #compiled(): number {
    return this.#runners.compiled + (this.#helper?.compiled ?? 0);
  }

  /** Releases the programs of candidates that lost for every kind of step. */
  async #releasePrograms(): Promise<void> {
    const [here, inHelper] = [new Set<number>(), new Set<number>()];
    for (const { isSideBySide, choice } of this.#kinds.values()) {
      for (const threads of [choice.current, choice.best]) {
        if (isSideBySide && threads > 1) inHelper.add(halfOf(threads));
        here.add(isSideBySide ? halfOf(threads) : threads);
      }
    }
    this.#runners.keep(here);
    // A helper thread that has died has nothing to release.
    await this.#helper?.keep(inHelper).catch(() => undefined);
  }
}

/** Returns the threads inside one op of each of two parallel halves: half of all, and at least one. */
function halfOf(threads: number): number {
  return Math.max(1, Math.floor(threads / 2));
}

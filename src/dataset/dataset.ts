import { ArgumentError, ConflictError } from "../errors.ts";
import { Trajectory, type Scalar } from "../trajectory/index.ts";
import type { Identity } from "./keys.ts";
import { balanced, deduped, filtered, isInShare, mapped, sampled, shuffled, taken } from "./operators.ts";
import { checkedRewards, rescored, type RescoreOptions, type RescoreReward } from "./rescore.ts";

/** Options of {@link Dataset.shuffle}. */
export interface ShuffleOptions {
  /** Trajectories held at a time, at least 1; one as large as the dataset makes every order equally likely. @default 1000 */
  readonly bufferSize?: number | undefined;
  /** Any integer. @default 0 */
  readonly seed?: number | bigint | undefined;
}

/** Options of {@link Dataset.dedupe}. */
export interface DedupeOptions {
  readonly by: Identity;
}

/** Options of {@link Dataset.balance}. */
export interface BalanceOptions {
  /** The class of a trajectory. */
  readonly by: (trajectory: Trajectory) => Scalar | undefined;
  /** How many of a class are kept, at least 1. */
  readonly max: number;
}

/** Options of {@link Dataset.split}. */
export interface SplitOptions {
  /** The expected share of the validation half, between 0 and 1. */
  readonly validation: number;
  /** Any integer. @default 0 */
  readonly seed?: number | bigint | undefined;
  /** What must not be on both sides. @default "messages" */
  readonly by?: Identity | undefined;
}

/** Two datasets that share no trajectory. */
export interface Split {
  readonly train: Dataset;
  readonly validation: Dataset;
}

/** `scenario` is required where the rewards look at one. */
type RescoreArguments<S> = undefined extends S
  ? [options?: RescoreOptions<S>]
  : [options: RescoreOptions<S> & Required<Pick<RescoreOptions<S>, "scenario">>];

/**
 * Trajectories to come: every stage is lazy and hands on one at a time, so that a pipeline over any number of files holds a few
 * trajectories. Nothing is read before somebody iterates, and each iteration starts from the beginning.
 *
 * @example
 * ```ts
 * const best = readTrajectories("runs/*\/trajectories/train/*.jsonl")
 *   .filter((t) => t.reward >= 0.9)
 *   .dedupe({ by: "messages" })
 *   .take(1000);
 * await writeTrajectories("best.jsonl.gz", best);
 * ```
 */
export class Dataset implements AsyncIterable<Trajectory> {
  readonly #records: AsyncIterable<Trajectory>;

  private constructor(records: AsyncIterable<Trajectory>) {
    this.#records = records;
  }

  /**
   * A dataset of trajectories that are already there, or come from elsewhere. From a generator it can be read once, and so not split;
   * a second reading throws ConflictError `E_CONFLICT`.
   */
  static from(trajectories: Iterable<Trajectory> | AsyncIterable<Trajectory>): Dataset {
    return new Dataset(rereadable(trajectories));
  }

  /** Keeps those of which `keep` says true. */
  filter(keep: (trajectory: Trajectory) => boolean | Promise<boolean>): Dataset {
    return this.#then((records) => filtered(records, keep));
  }

  /** Puts another trajectory in the place of each: `(t) => t.with({ metadata: { source: "june" } })`. */
  map(change: (trajectory: Trajectory) => Trajectory | Promise<Trajectory>): Dataset {
    return this.#then((records) => mapped(records, async (trajectory) => checkedTrajectory(await change(trajectory))));
  }

  /** The first `count`; what comes after is not read. @throws ArgumentError `E_ARGUMENT` for a count that is no whole number. */
  take(count: number): Dataset {
    checkCount(count, { param: "count", least: 0 });
    return this.#then((records) => taken(records, count));
  }

  /**
   * Keeps each with the probability `fraction`, in [0, 1]. The same seed keeps the same places.
   *
   * @param seed - Any integer.
   * @throws ArgumentError `E_ARGUMENT`.
   */
  sample(fraction: number, seed: number | bigint = 0): Dataset {
    if (typeof fraction !== "number" || !(fraction >= 0 && fraction <= 1)) {
      throw new ArgumentError(`Expected \`fraction\` to be a number in [0, 1], got \`${String(fraction)}\``, { param: "fraction" });
    }
    const key = checkedSeed(seed);
    return this.#then((records) => sampled(records, fraction, key));
  }

  /** Another order, by a buffer of which a random one is handed on whenever a new one comes. @throws ArgumentError `E_ARGUMENT`. */
  shuffle({ bufferSize = 1000, seed = 0 }: ShuffleOptions = {}): Dataset {
    checkCount(bufferSize, { param: "bufferSize", least: 1 });
    const key = checkedSeed(seed);
    return this.#then((records) => shuffled(records, bufferSize, key));
  }

  /** Keeps the first of those that are the same. Remembers 16 bytes of each. */
  dedupe({ by }: DedupeOptions): Dataset {
    checkIdentity(by);
    return this.#then((records) => deduped(records, by));
  }

  /** Keeps the first `max` of each class. Shuffle before to keep others. @throws ArgumentError `E_ARGUMENT`. */
  balance({ by, max }: BalanceOptions): Dataset {
    checkCount(max, { param: "max", least: 1 });
    return this.#then((records) => balanced(records, by, max));
  }

  /**
   * Scores again: the reward becomes `Σ weight·value`, each raw value the metric `reward/<name>`. Nothing is sampled.
   *
   * @param rewards - Those of an environment, or named functions.
   * @throws ArgumentError `E_ARGUMENT` for rewards that are none; while iterating, for a value that is not finite.
   */
  rescore<S = unknown>(rewards: readonly RescoreReward<S>[], ...[options = {}]: RescoreArguments<S>): Dataset {
    const checked = checkedRewards(rewards);
    return this.map((trajectory) => rescored<S>(trajectory, checked, options));
  }

  /**
   * Two halves. A hash of the trajectory's identity and the seed says which it belongs to: whatever the order, and whatever else is in the
   * dataset, it is the same half, and those that are the same are never on both sides.
   *
   * Each half reads the source for itself, and the stages before run for both: costly ones go behind, or into a file first.
   *
   * @throws ArgumentError `E_ARGUMENT` for a share outside (0, 1).
   */
  split({ validation, seed = 0, by = "messages" }: SplitOptions): Split {
    if (typeof validation !== "number" || !(validation > 0 && validation < 1)) {
      throw new ArgumentError(`Expected \`validation\` to be a share between 0 and 1, got \`${String(validation)}\``, {
        param: "validation",
      });
    }
    checkIdentity(by);
    const how = { by, seed: checkedSeed(seed) };
    return {
      train: this.filter((trajectory) => !isInShare(trajectory, validation, how)),
      validation: this.filter((trajectory) => isInShare(trajectory, validation, how)),
    };
  }

  /** All of them in memory. */
  async toArray(): Promise<Trajectory[]> {
    const all: Trajectory[] = [];
    for await (const trajectory of this) all.push(trajectory);
    return all;
  }

  [Symbol.asyncIterator](): AsyncIterator<Trajectory, void, undefined> {
    return this.#records[Symbol.asyncIterator]() as AsyncIterator<Trajectory, void, undefined>;
  }

  #then(stage: (records: AsyncIterable<Trajectory>) => AsyncIterable<Trajectory>): Dataset {
    return new Dataset({ [Symbol.asyncIterator]: () => stage(this.#records)[Symbol.asyncIterator]() });
  }
}

function rereadable(source: Iterable<Trajectory> | AsyncIterable<Trajectory>): AsyncIterable<Trajectory> {
  // A generator is its own iterator: the second time it would be at its end, and the data silently empty.
  const isReadOnce = "next" in source;
  let isRead = false;
  return {
    async *[Symbol.asyncIterator]() {
      if (isReadOnce && isRead) {
        throw new ConflictError(
          "This dataset comes from a generator and was read before; make it of an array, or write it to a file first",
        );
      }
      isRead = true;
      for await (const item of source) yield checkedTrajectory(item);
    },
  };
}

function checkedTrajectory(value: Trajectory): Trajectory {
  if (value instanceof Trajectory) return value;
  throw new ArgumentError(`Expected a Trajectory, got ${value === null ? "null" : typeof value}`, { param: "trajectory" });
}

function checkCount(value: number, { param, least }: { readonly param: string; readonly least: number }): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw new ArgumentError(`Expected \`${param}\` to be a whole number from ${least}, got \`${String(value)}\``, { param });
}

function checkedSeed(seed: number | bigint): bigint {
  if (typeof seed === "bigint" || Number.isSafeInteger(seed)) return BigInt(seed);
  throw new ArgumentError(`Expected \`seed\` to be an integer, got \`${String(seed)}\``, { param: "seed" });
}

function checkIdentity(by: Identity): void {
  if (by === "messages" || by === "trajectory" || typeof by === "function") return;
  throw new ArgumentError(`Expected \`by\` to be "messages", "trajectory" or a function, got \`${String(by)}\``, { param: "by" });
}

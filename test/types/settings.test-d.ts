/** The settings of configuration files against the options of `trainRl`. */
import { expectTypeOf, it } from "vitest";
import type { RlSettings } from "../../src/training/train/settings.ts";
import type { RlOptions } from "../../src/library/client/index.ts";
import type { CurriculumOptions, TrainRlOptions } from "../../src/training/train/index.ts";

/** Options that are objects of a program or functions, and the directory of the run, which is an argument of the command. */
type NoData = "model" | "environment" | "runDir" | "trackers" | "signal" | "stopWhen" | "scoreGroup";

/** Settings that the service recognizes and rejects. */
type Unsupported =
  | "klRefAdapterPath"
  | "logprobCalculationChunkSize"
  | "numTrajectoriesLearningRateMultiplierPower"
  | "packedSequenceLength"
  | "plotTensors"
  | "scaleLearningRateByRewardStdDev";

/** Options of `trainRl` that JSON can represent. */
type Data = Omit<TrainRlOptions<unknown>, NoData | "steps" | "train" | "curriculum" | "progress" | "workers"> & {
  readonly steps?: number | undefined;
  readonly train?: Omit<RlOptions, Unsupported> | undefined;
  readonly curriculum?: Omit<CurriculumOptions<unknown>, "key"> | undefined;
  readonly progress?: boolean | undefined;
  readonly workers?: boolean | undefined;
};

/** The type with every member read-only, at any depth. */
type DeepReadonly<T> = T extends readonly (infer E)[]
  ? readonly DeepReadonly<E>[]
  : T extends object
    ? { readonly [K in keyof T]: DeepReadonly<T[K]> }
    : T;

it("are exactly the options that JSON can represent", () => {
  expectTypeOf<keyof RlSettings>().toEqualTypeOf<keyof Data>();
  expectTypeOf<DeepReadonly<Omit<RlSettings, "chatTemplateKwargs">>>().toEqualTypeOf<DeepReadonly<Omit<Data, "chatTemplateKwargs">>>();
  expectTypeOf<Pick<RlSettings, "chatTemplateKwargs">>().toExtend<Pick<Data, "chatTemplateKwargs">>();
});

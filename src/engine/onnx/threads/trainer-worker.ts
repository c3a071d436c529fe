/** Entry point of the trainer thread. */
import { setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import type { ProcessorPrecision } from "../../engine-info.ts";
import { HelperThread } from "./helper-thread.ts";
import { Handover, serveCalls } from "../../../base/util/worker-rpc.ts";
import { Trainer } from "../train/trainer.ts";
import { trainerMethods } from "./trainer-methods.ts";

/** Settings of the thread. */
export interface TrainerSettings {
  /** Total number of threads, or candidates of which the fastest is chosen. */
  readonly threads: number | readonly number[];
  /** Niceness of the trainer's compute threads, 0 to 19; Linux only. */
  readonly niceness: number;
  /** Type in which base models under adapters are stored. */
  readonly weightPrecision: ProcessorPrecision;
}

/** Event that the trainer posts when its helper thread has died, with the error's message. */
export interface TrainerEvent {
  readonly helperDeath: string;
}

const { threads, niceness, weightPrecision } = workerData as TrainerSettings;
// On Linux this lowers the priority of the calling thread and of the compute threads that it starts later, but not of the samplers and
// the serving thread. On other systems it would lower the priority of the whole process.
if (process.platform === "linux" && niceness > 0) setPriority(0, niceness);

const trainer = new Trainer({
  threads,
  weightPrecision,
  startHelper: (onDeath) =>
    new HelperThread({ niceness }, (error) => {
      onDeath();
      parentPort!.postMessage({ event: { helperDeath: error.message } satisfies TrainerEvent });
    }),
});

const methods = {
  ...trainerMethods(trainer),
  weights: ([id]: readonly [string]) => {
    const weights = trainer.weights(id);
    return new Handover(weights, [weights.flat.buffer as ArrayBuffer]);
  },
};

/** Methods of the trainer thread. */
export type TrainerMethods = typeof methods;

serveCalls(parentPort!, methods);

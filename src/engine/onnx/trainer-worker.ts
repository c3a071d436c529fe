/** Entry point of the trainer thread. */
import { setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import { Handover, serveCalls } from "./worker-rpc.ts";
import { type BaseSource, Trainer } from "./train/trainer.ts";
import type { AdamParams, LoraSpec, LossSpec, Row } from "../port.ts";

/** Settings of the thread. */
export interface TrainerSettings {
  /** Total number of threads, or candidates of which the fastest is chosen. */
  readonly threads: number | readonly number[];
  /** Niceness of the trainer's compute threads, 0 to 19; Linux only. */
  readonly niceness: number;
}

/** Event that the trainer posts when its helper thread has died, with the error's message. */
export interface TrainerEvent {
  readonly helperDeath: string;
}

const { threads, niceness } = workerData as TrainerSettings;
// On Linux this lowers the priority of the calling thread and of the compute threads that it starts later, but not of the samplers and
// the serving thread. On other systems it would lower the priority of the whole process.
if (process.platform === "linux" && niceness > 0) setPriority(0, niceness);

const trainer = new Trainer({
  threads,
  niceness,
  onHelperDeath: (error) => parentPort!.postMessage({ event: { helperDeath: error.message } satisfies TrainerEvent }),
});

serveCalls(parentPort!, {
  createModel: ([base, spec]: readonly [BaseSource, { lora?: LoraSpec; from?: string; seed: number; fresh?: boolean }]) =>
    trainer.createModel(base, spec),
  forward: ([id, rows]: readonly [string, Row[]], signal) => trainer.forward(id, rows, signal),
  forwardBackward: ([id, rows, loss]: readonly [string, Row[], LossSpec], signal) => trainer.forwardBackward(id, rows, loss, signal),
  optimStep: ([id, adam]: readonly [string, AdamParams]) => trainer.optimStep(id, adam),
  resetOptimizer: ([id]: readonly [string]) => trainer.resetOptimizer(id),
  saveState: ([id, path]: readonly [string, string]) => trainer.saveState(id, path),
  loadState: ([id, path]: readonly [string, string]) => trainer.loadState(id, path),
  weights: ([id]: readonly [string]) => {
    const weights = trainer.weights(id);
    return new Handover(weights, [weights.flat.buffer as ArrayBuffer]);
  },
  unload: ([id]: readonly [string]) => trainer.unload(id),
});

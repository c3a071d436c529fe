/** Methods of a thread or process that trains. */
import type { AdamParams, LossSpec, Row, StatePath } from "../../port.ts";
import type { BaseSource } from "../model/config.ts";
import type { TrainedModelSpec, Trainer } from "../train/trainer.ts";

/** Trainer in the memory of the process or of a device. */
type AnyTrainer = Pick<Trainer, "createModel" | "forward" | "forwardBackward" | "optimStep" | "saveState" | "loadState" | "unload"> & {
  resetOptimizer(id: string): void | Promise<void>;
};

/** Returns the methods of a thread or process that trains, except publication of weights. */
export function trainerMethods(trainer: AnyTrainer) {
  return {
    createModel: ([base, spec]: readonly [BaseSource, TrainedModelSpec]) => trainer.createModel(base, spec),
    forward: ([id, rows]: readonly [string, readonly Row[]], signal: AbortSignal) => trainer.forward(id, rows, signal),
    forwardBackward: ([id, rows, loss]: readonly [string, readonly Row[], LossSpec], signal: AbortSignal) =>
      trainer.forwardBackward(id, rows, loss, signal),
    optimStep: ([id, adam]: readonly [string, AdamParams]) => trainer.optimStep(id, adam),
    resetOptimizer: ([id]: readonly [string]) => trainer.resetOptimizer(id),
    saveState: ([id, path]: readonly [string, StatePath]) => trainer.saveState(id, path),
    loadState: ([id, path]: readonly [string, StatePath]) => trainer.loadState(id, path),
    unload: ([id]: readonly [string]) => trainer.unload(id),
  };
}

/** Methods of every trainer. */
export type CommonMethods = ReturnType<typeof trainerMethods>;

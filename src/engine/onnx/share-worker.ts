/** Entry of the trainer's second thread: it computes one share of a step's rows. */
import { setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import { adapterLayout, baseLayout } from "./model/parameters.ts";
import { rotaryTables } from "./model/transformer.ts";
import { type BatchModel, BatchRunner, type BatchResult } from "./train/batch-runner.ts";
import type { SharedModel, ShareResult, ShareTask } from "./train/second-thread.ts";
import { Handover, serveCalls } from "./worker-rpc.ts";

const { threads, niceness } = workerData as { threads: number; niceness: number };
if (process.platform === "linux" && niceness > 0) setPriority(0, niceness);

const runner = new BatchRunner(threads);
const models = new Map<string, { readonly model: BatchModel; readonly shared: Float32Array }>();

serveCalls(parentPort!, {
  introduce: ([id, { config, lora, frozen, parameters }]: readonly [string, SharedModel]) => {
    const layout = baseLayout(config);
    const base = { config, layout, weights: frozen?.slice() ?? new Float32Array(0), rotary: rotaryTables(config) };
    const trained = lora ? adapterLayout(config, lora.rank) : layout;
    models.set(id, { model: { base, lora, layout: trained, parameters: new Float32Array(trained.length) }, shared: parameters });
  },
  run: async ([id, { rows, batches, loss, isNew, memory }]: readonly [string, ShareTask], signal) => {
    const { model, shared } = models.get(id)!;
    if (isNew) model.parameters.set(shared);
    const gradients = loss && (memory ?? new Float32Array(model.layout.length));
    if (memory) memory.fill(0);
    const results: BatchResult[] = [];
    for (const batch of batches) {
      signal.throwIfAborted();
      results.push(await runner.run(model, rows, batch, loss, gradients));
      // Lets the worker see an abort that arrived meanwhile.
      await new Promise(setImmediate);
    }
    return new Handover({ results, gradients } satisfies ShareResult, gradients ? [gradients.buffer as ArrayBuffer] : []);
  },
  forget: ([id]: readonly [string]) => {
    models.delete(id);
  },
});

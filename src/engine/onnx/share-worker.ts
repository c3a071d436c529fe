/** Entry point of the trainer's helper thread, which computes one data-parallel half of a step. */
import { setPriority } from "node:os";
import { parentPort, workerData } from "node:worker_threads";
import { adapterLayout, baseLayout } from "./model/parameters.ts";
import { rotaryTables } from "./model/transformer.ts";
import { placesNeeded } from "./train/batch.ts";
import type { BatchModel, BatchResult } from "./train/batch-runner.ts";
import { Runners } from "./train/runners.ts";
import type { SharedModel, ShareResult, ShareTask } from "./train/second-thread.ts";
import { Handover, serveCalls } from "./worker-rpc.ts";

const { niceness } = workerData as { niceness: number };
if (process.platform === "linux" && niceness > 0) setPriority(0, niceness);

const runners = new Runners();

interface Known {
  readonly model: BatchModel;
  readonly baseId: number | null;
  readonly shared: Float32Array;
  /** Version of the shared parameters that was copied last; −1 = none. */
  version: number;
}
const models = new Map<string, Known>();

/** Returns the weights of a base: the weights that were sent, or the copy of another model on the same base. */
function baseWeights(base: SharedModel["base"]): Float32Array {
  if (base === null) return new Float32Array(0);
  return base.weights ?? [...models.values()].find(({ baseId }) => baseId === base.id)!.model.base.weights;
}

serveCalls(parentPort!, {
  introduce: ([id, { config, lora, base, parameters }]: readonly [string, SharedModel]) => {
    const layout = baseLayout(config);
    const frozen = { config, layout, weights: baseWeights(base), rotary: rotaryTables({ ...config, contextLength: placesNeeded(config) }) };
    const trained = lora ? adapterLayout(config, lora.rank) : layout;
    const model = { base: frozen, lora, layout: trained, parameters: new Float32Array(trained.length) };
    models.set(id, { model, baseId: base?.id ?? null, shared: parameters, version: -1 });
  },
  run: async ([id, { rows, batches, loss, threads, version, memory }]: readonly [string, ShareTask], signal) => {
    const known = models.get(id)!;
    const { model, shared } = known;
    if (known.version !== version) model.parameters.set(shared);
    known.version = version;
    const gradients = loss && (memory ?? new Float32Array(model.layout.length));
    if (memory) memory.fill(0);
    const results: BatchResult[] = [];
    for (const batch of batches) {
      signal.throwIfAborted();
      results.push(await runners.of(threads).run(model, rows, batch, loss, gradients));
      // Yields to the event loop so that an abort message is received.
      await new Promise(setImmediate);
    }
    return new Handover(
      { results, gradients, compiled: runners.compiled } satisfies ShareResult,
      gradients ? [gradients.buffer as ArrayBuffer] : [],
    );
  },
  keep: ([threads]: readonly [ReadonlySet<number>]) => runners.keep(threads),
  forget: ([id]: readonly [string]) => {
    models.delete(id);
  },
});

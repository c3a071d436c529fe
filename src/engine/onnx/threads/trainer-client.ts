/** Client of the trainer's worker. Restarts the worker when it dies and tracks which models were lost with it. */
import { UnavailableError } from "../../../errors.ts";
import type { CallOptions, ModelHandle, WorkerStatus } from "../../port.ts";
import { spawnWorker } from "../../../util/spawn-worker.ts";
import type { MethodInput, MethodOutput } from "../../../util/worker-rpc.ts";
import { SupervisedWorker, type WorkerDeath } from "./supervised-worker.ts";
import type { BaseSource } from "../model/config.ts";
import type { TrainedModelSpec } from "../train/trainer.ts";
import type { TrainerEvent, TrainerMethods, TrainerSettings } from "./trainer-worker.ts";

/** Forwards calls to the trainer's worker. A handle's identifier ends with the incarnation of the worker that holds the model. */
export class TrainerClient {
  readonly #worker: SupervisedWorker<TrainerMethods, TrainerEvent>;
  #helperRestarts = 0;

  /** @param onDeath - Called after each death of the trainer or its helper thread. */
  constructor(settings: TrainerSettings, onDeath: (death: WorkerDeath) => void) {
    this.#worker = new SupervisedWorker({
      name: "trainer",
      spawn: () => spawnWorker("engine/onnx/threads/trainer-worker", { workerData: settings }),
      onEvent: ({ helperDeath }) => {
        this.#helperRestarts++;
        onDeath({ worker: "trainer-helper", message: helperDeath, restartsInMs: 0 });
      },
      onDeath,
    });
  }

  /** States of the trainer and, if it was ever restarted, of its helper thread. */
  get status(): readonly WorkerStatus[] {
    const helper = { name: "trainer-helper", role: "trainer", state: "running", restarts: this.#helperRestarts, restartsInMs: 0 } as const;
    return [this.#worker.statusAs("trainer"), ...(this.#helperRestarts > 0 ? [helper] : [])];
  }

  /** Creates a model; waits for a trainer that is being restarted. */
  async createModel(base: BaseSource, spec: TrainedModelSpec, { signal }: CallOptions): Promise<ModelHandle> {
    const client = await this.#worker.running(signal);
    const { restarts } = this.#worker;
    const id = await client.call("createModel", [base, spec], { signal });
    return { id: `${id}@${restarts}`, base: base.id };
  }

  /** Whether the worker that holds the model is still running. */
  holds({ id }: ModelHandle): boolean {
    return this.#worker.client !== null && incarnationOf(id) === this.#worker.restarts;
  }

  /**
   * Calls a method on a model.
   *
   * @param input - Returns the input of the method, given the worker's identifier of the model.
   * @throws UnavailableError `E_UNAVAILABLE` if the trainer has died since the model was created, or dies during the call.
   */
  async call<K extends keyof TrainerMethods>(
    model: ModelHandle,
    method: K,
    input: (id: string) => MethodInput<TrainerMethods, K>,
    { signal }: CallOptions,
  ): Promise<MethodOutput<TrainerMethods, K>> {
    signal?.throwIfAborted();
    if (!this.holds(model)) throw new UnavailableError("The trainer died and lost the model; load it again from its last saved state");
    return this.#worker.require().call(method, input(model.id.split("@")[0]!), { signal });
  }

  /** Frees a model; does nothing if the trainer has lost it. */
  async unload(model: ModelHandle): Promise<void> {
    if (!this.holds(model)) return;
    await this.call(model, "unload", (id) => [id], {}).catch((error: unknown) => {
      if (!(error instanceof UnavailableError)) throw error;
    });
  }

  close(): Promise<void> {
    return this.#worker.close();
  }
}

function incarnationOf(handleId: string): number {
  return Number(handleId.split("@")[1]);
}

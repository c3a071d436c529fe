/** The calling side of the trainer's worker: restarts it when it dies, and knows which models died with it. */
import { UnavailableError } from "../../errors.ts";
import type { CallOptions, LoraSpec, ModelHandle, StatePath, WorkerStatus } from "../port.ts";
import { spawnWorker } from "../../util/spawn-worker.ts";
import { SupervisedWorker, type WorkerDeath } from "./supervised-worker.ts";
import type { BaseSource } from "./train/trainer.ts";
import type { TrainerEvent, TrainerSettings } from "./trainer-worker.ts";

/** Specification of a model, as the trainer takes it. */
export interface TrainedModelSpec {
  readonly lora?: LoraSpec | undefined;
  readonly from?: StatePath | undefined;
  readonly seed: number;
  readonly fresh?: boolean | undefined;
}

/** See the file header. The identifier of a handle ends with the incarnation of the worker that holds the model. */
export class TrainerClient {
  readonly #worker: SupervisedWorker;
  #helperRestarts = 0;

  /** @param onDeath - Called after each death of the trainer or its helper thread. */
  constructor(settings: TrainerSettings, onDeath: (death: WorkerDeath) => void) {
    this.#worker = new SupervisedWorker({
      name: "trainer",
      spawn: () => spawnWorker("engine/onnx/trainer-worker", { workerData: settings }),
      onEvent: ({ helperDeath }: TrainerEvent) => {
        this.#helperRestarts++;
        onDeath({ worker: "trainer-helper", message: helperDeath, restartsInMs: 0 });
      },
      onDeath,
    });
  }

  /** The trainer, and its helper thread once that was restarted. */
  get status(): readonly WorkerStatus[] {
    const helper = { name: "trainer-helper", role: "trainer", state: "running", restarts: this.#helperRestarts, restartsInMs: 0 } as const;
    return [this.#worker.statusAs("trainer"), ...(this.#helperRestarts > 0 ? [helper] : [])];
  }

  /** Makes a model; waits for a trainer that is being restarted. */
  async createModel(base: BaseSource, spec: TrainedModelSpec, { signal }: CallOptions): Promise<ModelHandle> {
    const client = await this.#worker.running(signal);
    const { restarts } = this.#worker;
    const id = await client.call<string>("createModel", [base, spec], { signal });
    return { id: `${id}@${restarts}`, base: base.id };
  }

  /** False once the worker that held the model has died. */
  holds({ id }: ModelHandle): boolean {
    return this.#worker.client !== null && incarnationOf(id) === this.#worker.restarts;
  }

  /**
   * Calls a method on a model.
   *
   * @throws UnavailableError `E_UNAVAILABLE` when the trainer has died since the model was made, or dies meanwhile.
   */
  async call<T>(model: ModelHandle, method: string, args: readonly unknown[], { signal }: CallOptions): Promise<T> {
    signal?.throwIfAborted();
    if (!this.holds(model)) throw new UnavailableError("The trainer died and lost the model; load it again from its last saved state");
    return this.#worker.require().call(method, [model.id.split("@")[0], ...args], { signal });
  }

  /** Frees a model; one that the trainer lost is free already. */
  async unload(model: ModelHandle): Promise<void> {
    if (!this.holds(model)) return;
    await this.call(model, "unload", [], {}).catch((error: unknown) => {
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

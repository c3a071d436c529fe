/** Client of the trainer's worker. Restarts the worker when it dies and tracks which models were lost with it. */
import { UnavailableError } from "../../../base/errors.ts";
import type { CallOptions, ModelHandle, WorkerStatus } from "../../port.ts";
import type { MethodInput, MethodOutput, WorkerClient } from "../../../base/util/worker-rpc.ts";
import { SupervisedWorker, type SupervisorOptions } from "./supervised-worker.ts";
import type { BaseSource } from "../model/config.ts";
import type { TrainedModelSpec } from "../train/trainer.ts";
import type { CommonMethods } from "./trainer-methods.ts";
import { first } from "../../../base/util/values.ts";

/**
 * Forwards calls to the trainer's worker. The identifier of a model's handle is `<id>@<incarnation>`: the worker's own identifier of the
 * model, and the number of restarts of the worker when the model was created.
 */
export class TrainerClient<M extends CommonMethods, E> {
  readonly #worker: SupervisedWorker<M, E>;
  readonly #onPass: () => void;

  /** @param onPass - Called before each forward or gradient pass. @default no callback */
  constructor(options: SupervisorOptions<E>, onPass: () => void = () => {}) {
    this.#worker = new SupervisedWorker(options);
    this.#onPass = onPass;
  }

  /** State of the worker. */
  get status(): WorkerStatus {
    return this.#worker.statusAs("trainer");
  }

  /** Calls a method that needs no model; waits for a worker that is being restarted. */
  async ask<K extends keyof M & string>(method: K, input: MethodInput<M, K>): Promise<MethodOutput<M, K>> {
    return (await this.#worker.running()).call(method, input);
  }

  /** Creates a model; waits for a trainer that is being restarted. */
  async createModel(base: BaseSource, spec: TrainedModelSpec, { signal }: CallOptions): Promise<ModelHandle> {
    const client = await this.#worker.running(signal);
    const { restarts } = this.#worker;
    const id = await (client as unknown as WorkerClient<CommonMethods>).call("createModel", [base, spec], { signal });
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
  async call<K extends keyof M & string>(
    model: ModelHandle,
    method: K,
    input: (id: string) => MethodInput<M, K>,
    { signal }: CallOptions,
  ): Promise<MethodOutput<M, K>> {
    signal?.throwIfAborted();
    if (!this.holds(model)) throw new UnavailableError("The trainer died and lost the model; load it again from its last saved state");
    if (method === "forward" || method === "forwardBackward") this.#onPass();
    return this.#worker.require().call(method, input(first(model.id.split("@"))), { signal });
  }

  /** Frees a model; does nothing if the trainer has lost it. */
  async unload(model: ModelHandle): Promise<void> {
    if (!this.holds(model)) return;
    await this.call(model, "unload", (id) => [id] as MethodInput<M, "unload">, {}).catch((error: unknown) => {
      if (!(error instanceof UnavailableError)) throw error;
    });
  }

  /** Waits for earlier calls, and stops the worker. */
  close(): Promise<void> {
    return this.#worker.close();
  }
}

/** Returns the number of restarts in the identifier of a handle. */
function incarnationOf(handleId: string): number {
  return Number(handleId.split("@")[1]);
}

/** One model on the server: its operations in the order of their sequence numbers. */
import type { z } from "zod";
import { NotFoundError } from "../../errors.ts";
import { linkAbort } from "../../util/abort.ts";
import { createdModelAnswer, samplerAnswer } from "./answers.ts";
import type { PassAddress } from "./encoding.ts";
import type { Session } from "./session.ts";
import { type Answer, type Body, json, type TinkerTransport } from "./transport.ts";

export class ServerModel {
  readonly id: string;
  /** The scale numerator the server uses; null where it does not say. */
  readonly alpha: number | null;
  readonly #transport: TinkerTransport;
  readonly #session: Session;
  #lastSequence = 0;
  #turn: Promise<unknown> = Promise.resolve();

  private constructor(transport: TinkerTransport, session: Session, facts: { readonly id: string; readonly alpha: number | null }) {
    [this.#transport, this.#session, this.id, this.alpha] = [transport, session, facts.id, facts.alpha];
  }

  /**
   * Makes an adapter on a base that the server has. `seed` is a 31-bit number. The server goes on with what it was asked for even
   * if nobody waits: a model that comes after an abort is let go of.
   */
  static async create(
    transport: TinkerTransport,
    session: Session,
    facts: { readonly base: string; readonly rank: number; readonly seed: number },
    signal?: AbortSignal,
  ): Promise<ServerModel> {
    signal?.throwIfAborted();
    const creating = ServerModel.#create(transport, session, facts);
    const caller = linkAbort(signal);
    const leaving = new Promise<never>((_, reject) =>
      caller.signal.addEventListener("abort", () => reject(caller.signal.reason as Error), { once: true }),
    );
    try {
      return await Promise.race([creating, leaving]);
    } catch (error) {
      if (caller.signal.aborted) void creating.then((model) => model.discard()).catch(() => undefined);
      throw error;
    } finally {
      caller.dispose();
    }
  }

  static async #create(
    transport: TinkerTransport,
    session: Session,
    { base, rank, seed }: { readonly base: string; readonly rank: number; readonly seed: number },
  ): Promise<ServerModel> {
    const lora = { rank, seed, train_unembed: false, train_mlp: true, train_attn: true };
    const body = { session_id: session.id, model_seq_id: session.next(), base_model: base, lora_config: lora, type: "create_model" };
    const { request_id: request } = await transport.submit("create_model", json(body));
    const created = transport.read(await transport.future(request, "CreateModel"), createdModelAnswer, "create_model");
    return new ServerModel(transport, session, { id: created.model_id, alpha: created.lora_config?.alpha ?? null });
  }

  /**
   * Carries out one operation. Operations reach the server in the order of these calls; several may be on their way. The server
   * knows a repetition by the sequence number, so that a lost answer costs nothing.
   */
  async run(
    path: string,
    body: (address: PassAddress) => Body,
    { accepts, signal }: { readonly accepts?: string | undefined; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Answer> {
    const submitted = this.#turn.then(() => {
      signal?.throwIfAborted();
      return this.#transport.submit(path, body({ modelId: this.id, sequence: ++this.#lastSequence }), { signal });
    });
    this.#turn = submitted.catch(() => undefined);
    const { request_id: request } = await submitted;
    return this.#transport.future(request, path, { ...(accepts === undefined ? {} : { accepts }), signal });
  }

  /** The same for an operation whose body is a plain object and whose answer is read at once. */
  async runJson<T>(path: string, fields: object, schema: z.ZodType<T>, signal?: AbortSignal): Promise<T> {
    const body = ({ modelId, sequence }: PassAddress) => json({ model_id: modelId, seq_id: sequence, ...fields, type: path });
    return this.#transport.read(await this.run(path, body, { signal }), schema, path);
  }

  /** Weights for sampling that last as long as the session; gives the sampler's name. */
  async saveForSampling(signal?: AbortSignal): Promise<string> {
    const fields = { sampling_session_seq_id: this.#session.next() };
    return (await this.runJson("save_weights_for_sampler", fields, samplerAnswer, signal)).sampling_session_id;
  }

  /** Lets go of the model. One that is gone is no error: an unload has no number, and is posted again when its answer is lost. */
  async unload(): Promise<void> {
    await this.#turn;
    try {
      const { request_id: request } = await this.#transport.submit("unload_model", json({ model_id: this.id, type: "unload_model" }));
      await this.#transport.future(request, "unload_model");
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  /** {@link unload} where something else is done or told already: a model that stays ends with the session. */
  async discard(): Promise<void> {
    await this.unload().catch(() => undefined);
  }
}

/** Models on a Tinker server. */
import type { z } from "zod";
import { NotFoundError } from "../../base/errors.ts";
import { abortable } from "../../base/util/abort.ts";
import { createdModelAnswer, samplerAnswer } from "./answers.ts";
import type { PassAddress } from "./encoding.ts";
import type { TinkerSession } from "./session.ts";
import { type TinkerAnswer, type Body, json, type TinkerTransport } from "./transport.ts";

/** Model with an adapter on the server. Its operations are submitted in the order of their sequence numbers. */
export class ServerModel {
  readonly id: string;
  /** Numerator of the adapter scale on the server; null if the server does not report it. */
  readonly alpha: number | null;
  readonly #transport: TinkerTransport;
  readonly #session: TinkerSession;
  /** Sequence number of the latest operation; the first one has number 1. */
  #lastSequence = 0;
  /** Submission of the latest operation, which the next one waits for; never rejects. */
  #lastSubmission: Promise<unknown> = Promise.resolve();

  private constructor(transport: TinkerTransport, session: TinkerSession, created: { readonly id: string; readonly alpha: number | null }) {
    this.#transport = transport;
    this.#session = session;
    this.id = created.id;
    this.alpha = created.alpha;
  }

  /**
   * Creates a model with an adapter. After an abort the server still creates the model, which is then unloaded.
   *
   * @param spec - Name of the base on the server, rank of the adapter, and a 31-bit seed.
   */
  static async create(
    transport: TinkerTransport,
    session: TinkerSession,
    spec: { readonly base: string; readonly rank: number; readonly seed: number },
    signal?: AbortSignal,
  ): Promise<ServerModel> {
    signal?.throwIfAborted();
    const creating = ServerModel.#create(transport, session, spec);
    try {
      return await abortable(creating, signal);
    } catch (error) {
      if (signal?.aborted) void creating.then((model) => model.discard()).catch(() => undefined);
      throw error;
    }
  }

  /** Creates a model and waits for it. */
  static async #create(
    transport: TinkerTransport,
    session: TinkerSession,
    { base, rank, seed }: { readonly base: string; readonly rank: number; readonly seed: number },
  ): Promise<ServerModel> {
    const lora = { rank, seed, train_unembed: false, train_mlp: true, train_attn: true };
    const body = { session_id: session.id, model_seq_id: session.next(), base_model: base, lora_config: lora, type: "create_model" };
    const { request_id: request } = await transport.submit("create_model", json(body));
    const created = transport.read(await transport.future(request, "CreateModel"), createdModelAnswer, "create_model");
    return new ServerModel(transport, session, { id: created.model_id, alpha: created.lora_config?.alpha ?? null });
  }

  /**
   * Runs one operation. Operations are submitted in the order of the calls, and several can be in flight. The sequence number makes an
   * operation idempotent: the server recognizes a request that is sent again after a lost response.
   */
  async run(
    path: string,
    body: (address: PassAddress) => Body,
    { accepts, signal }: { readonly accepts?: string | undefined; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<TinkerAnswer> {
    const submission = this.#lastSubmission.then(() => {
      signal?.throwIfAborted();
      this.#lastSequence++;
      return this.#transport.submit(path, body({ modelId: this.id, sequence: this.#lastSequence }), { signal });
    });
    this.#lastSubmission = submission.catch(() => undefined);
    const { request_id: request } = await submission;
    return this.#transport.future(request, path, { ...(accepts === undefined ? {} : { accepts }), signal });
  }

  /** Runs an operation with a JSON body and parses its result. */
  async runJson<T>(path: string, fields: object, schema: z.ZodType<T>, signal?: AbortSignal): Promise<T> {
    const body = ({ modelId, sequence }: PassAddress) => json({ model_id: modelId, seq_id: sequence, ...fields, type: path });
    return this.#transport.read(await this.run(path, body, { signal }), schema, path);
  }

  /** Saves sampling weights for the lifetime of the session and returns the sampler's identifier. */
  async saveForSampling(signal?: AbortSignal): Promise<string> {
    const fields = { sampling_session_seq_id: this.#session.next() };
    return (await this.runJson("save_weights_for_sampler", fields, samplerAnswer, signal)).sampling_session_id;
  }

  /** Unloads the model. A missing model is not an error: an unload has no sequence number and is repeated if its response is lost. */
  async unload(): Promise<void> {
    await this.#lastSubmission;
    try {
      const { request_id: request } = await this.#transport.submit("unload_model", json({ model_id: this.id, type: "unload_model" }));
      await this.#transport.future(request, "unload_model");
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  /** Unloads the model and ignores failures: the server unloads it at the end of the session. */
  async discard(): Promise<void> {
    await this.unload().catch(() => undefined);
  }
}

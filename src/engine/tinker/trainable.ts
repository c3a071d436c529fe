/** One trainable model: passes rescaled to the port's sum, steps of AdamW, and what of it the server does not know. */
import { EngineError, NonFiniteError, UnsupportedError } from "../../errors.ts";
import { requireFiniteLogprobs } from "../check-results.ts";
import type { AdamParams, Logprobs, LossMetrics, LossSpec, Row } from "../port.ts";
import { passAnswer, stepAnswer } from "./answers.ts";
import { forwardCall, lossCall, lossValue, needsOldLogprobs } from "./datum.ts";
import { decodePass, encodeForward, encodePass, type PassPart, type TinkerEncoding } from "./encoding.ts";
import type { ServerModel } from "./server-model.ts";
import type { ServerTraits } from "./servers.ts";
import type { TinkerTransport } from "./transport.ts";

/** Rows of one call, as they were sent. */
interface Sent {
  readonly rows: readonly Row[];
  readonly loss: LossSpec;
  /** How many sequences since the last step they were sent for. */
  readonly scale: number;
}

/** What a model does its work with. */
export interface TrainableContext {
  readonly transport: TinkerTransport;
  readonly traits: ServerTraits;
  readonly encoding: TinkerEncoding;
}

const isTrained = (row: Row): boolean => row.weights.some((weight) => weight !== 0);

export class Trainable {
  /** Replaced when a state is loaded: most servers load only into a model that nothing was done with. */
  server: ServerModel;
  /** Steps since the optimizer was fresh. */
  step = 0;
  /** Steps since the server's optimizer was fresh: its bias correction counts them. */
  serverStep = 0;
  readonly #context: TrainableContext;
  /** Since the last step; their gradients are on the server. */
  #sent: Sent[] = [];
  #sequences = 0;
  #isUncertain = false;

  constructor(server: ServerModel, context: TrainableContext) {
    this.server = server;
    this.#context = context;
  }

  /** Continues from a state that `server` was just loaded with. */
  replace(server: ServerModel, steps: { readonly step: number; readonly serverStep: number }): void {
    [this.server, this.step, this.serverStep] = [server, steps.step, steps.serverStep];
    this.#forget();
  }

  async forward(rows: readonly Row[], signal: AbortSignal | undefined): Promise<Logprobs[]> {
    this.#requireCertain();
    const trained = rows.filter(isTrained);
    const logprobs = aligned(rows, await this.#pass("forward", encodeForward(forwardCall(trained)), signal));
    requireFiniteLogprobs(logprobs);
    return logprobs;
  }

  async forwardBackward(
    rows: readonly Row[],
    loss: LossSpec,
    signal: AbortSignal | undefined,
  ): Promise<{ logprobs: Logprobs[]; metrics: LossMetrics }> {
    this.#requireCertain();
    const known = needsOldLogprobs(rows, loss) ? withOldLogprobs(rows, await this.forward(rows, signal)) : rows;
    const trained = known.filter(isTrained);
    // Gradients that are not finite stay on the server: the model is of no more use.
    const logprobs = await this.#uncertainUntil(this.#sendFinite(rows, trained, loss, signal));
    const tokens = rows.reduce((sum, { weights }) => sum + weights.reduce((count, weight) => count + (weight === 0 ? 0 : 1), 0), 0);
    return { logprobs, metrics: { loss: lossValue(rows, loss, logprobs), tokens, entropy: NaN } };
  }

  /** Clip, AdamW, zero the gradients. */
  async optimStep(adam: AdamParams, signal: AbortSignal | undefined): Promise<{ gradNorm: number; step: number }> {
    this.#requireCertain();
    const { learningRate, beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8, weightDecay = 0, maxGradNorm = 0 } = adam;
    if (maxGradNorm > 0 && !this.#context.traits.clipsGradients)
      throw new UnsupportedError("This Tinker server does not clip gradients; send max_grad_norm 0", { param: "max_grad_norm" });
    if (this.#context.traits.reduction === "sequence-mean") await this.#evenOut(signal);
    // The server counts its own steps for the bias correction. Where a reset made the two counts differ, its rate, ε and decay
    // are chosen such that the update is that of ours.
    const [own, its] = [this.step + 1, this.serverStep + 1];
    const second = Math.sqrt((1 - beta2 ** own) / (1 - beta2 ** its));
    const rate = (learningRate * second * (1 - beta1 ** its)) / (1 - beta1 ** own);
    const decay = rate === 0 ? 0 : (weightDecay * learningRate) / rate;
    const gradNorm = await this.#uncertainUntil(
      this.#step({ learning_rate: rate, beta1, beta2, eps: epsilon * second, weight_decay: decay, grad_clip_norm: maxGradNorm }, signal),
    );
    this.step = own;
    return { gradNorm, step: own };
  }

  /** A step without gradient, rate and memory leaves moments of zero; a first one takes what had accumulated. */
  async resetOptimizer(signal: AbortSignal | undefined): Promise<void> {
    this.#requireCertain();
    const nothing = { learning_rate: 0, beta1: 0, beta2: 0, eps: 1e-8, weight_decay: 0, grad_clip_norm: 0 };
    const steps = this.#sent.length > 0 ? 2 : 1;
    for (let done = 0; done < steps; done++) await this.#uncertainUntil(this.#step(nothing, signal));
    this.step = 0;
  }

  async #step(adam: object, signal: AbortSignal | undefined): Promise<number> {
    const { metrics } = await this.server.runJson("optim_step", { adam_params: adam }, stepAnswer, signal);
    if (this.#context.traits.reduction === "sum" && Object.keys(metrics ?? {}).some((name) => name.startsWith("skyrl.ai/")))
      throw new EngineError("The Tinker server is SkyRL, whose losses are means; start the engine with the server kind skyrl");
    this.serverStep++;
    this.#forget();
    const norm = Object.entries(metrics ?? {}).find(([name]) => /(^|[/:.])grad(ient)?_norm(:|$)/.test(name))?.[1];
    // JSON has no NaN: servers write null for it.
    if (norm === null) throw new NonFiniteError("Expected a finite gradient norm, the Tinker server reported null");
    return norm ?? NaN;
  }

  /**
   * The server will divide by all sequences since the last step, and only the last call was sent for as many. Every loss is
   * linear in its scale while the weights stay, so what is missing is sent after it.
   */
  async #evenOut(signal: AbortSignal | undefined): Promise<void> {
    if (this.#sent.every(({ scale }) => scale === this.#sequences)) return;
    const total = 2 * this.#sequences;
    for (const { rows, loss, scale } of [...this.#sent]) await this.#uncertainUntil(this.#send(rows, loss, total - scale, signal));
  }

  async #sendFinite(rows: readonly Row[], trained: readonly Row[], loss: LossSpec, signal: AbortSignal | undefined): Promise<Logprobs[]> {
    const logprobs = aligned(rows, await this.#send(trained, loss, this.#sequences + trained.length, signal));
    requireFiniteLogprobs(logprobs);
    return logprobs;
  }

  async #send(rows: readonly Row[], loss: LossSpec, scale: number, signal: AbortSignal | undefined): Promise<Float32Array[]> {
    const { traits, encoding } = this.#context;
    const logprobs = await this.#pass("forward_backward", encodePass(lossCall(rows, loss, traits.reduction, scale), encoding), signal);
    this.#sent.push({ rows, loss, scale });
    this.#sequences += rows.length;
    return logprobs;
  }

  /** Parts are sent one after the other and computed as the server likes. */
  async #pass(path: "forward" | "forward_backward", parts: readonly PassPart[], signal: AbortSignal | undefined): Promise<Float32Array[]> {
    signal?.throwIfAborted();
    const accepts = this.#context.encoding === "protobuf" ? "application/x-protobuf" : undefined;
    const answers = await Promise.all(
      parts.map(async ({ body, count }) => {
        const answer = await this.server.run(path, body, { accepts, signal });
        const logprobs = answer.isProtobuf
          ? decodePass(answer.bytes)
          : this.#context.transport.read(answer, passAnswer, path).loss_fn_outputs.map((output) => Float32Array.from(output.logprobs.data));
        if (logprobs.length === count) return logprobs;
        throw new EngineError(`The Tinker server answered ${path} with ${logprobs.length} sequences, expected ${count}`);
      }),
    );
    return answers.flat();
  }

  /** What ends in the middle leaves gradients that nobody knows. */
  async #uncertainUntil<T>(work: Promise<T>): Promise<T> {
    this.#isUncertain = true;
    const result = await work;
    this.#isUncertain = false;
    return result;
  }

  #requireCertain(): void {
    if (this.#isUncertain)
      throw new EngineError(
        "A call on this model was cut off, and what the server made of it is unknown. Load a saved state, or unload it",
      );
  }

  #forget(): void {
    [this.#sent, this.#sequences, this.#isUncertain] = [[], 0, false];
  }
}

function withOldLogprobs(rows: readonly Row[], now: readonly Logprobs[]): Row[] {
  return rows.map((row, i) => ({ ...row, logprobs: row.logprobs!.map((old, t) => (Number.isNaN(old) ? now[i]![t]! : old)) }));
}

/** From `[T − 1]` of the trained rows to `[T]` of all, 0 where the weight is 0. */
function aligned(rows: readonly Row[], found: readonly Float32Array[]): Logprobs[] {
  let next = 0;
  return rows.map((row) => {
    const logprobs = isTrained(row) ? found[next++]! : null;
    return row.weights.map((weight, t) => (weight === 0 || logprobs === null ? 0 : logprobs[t - 1]!));
  });
}

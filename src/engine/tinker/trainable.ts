/** Trainable model on a Tinker server: rescales losses to the port's weighted sum and keeps the optimizer state that the server lacks. */
import { EngineError, NonFiniteError, UnsupportedError } from "../../base/errors.ts";
import { requireFiniteLogprobs } from "../check-results.ts";
import type { AdamParams, Engine, Logprobs, LossSpec, Row } from "../port.ts";
import { passAnswer, stepAnswer } from "./answers.ts";
import { forwardCall, lossCall, lossValue, needsOldLogprobs, requireNoEntropyBonus } from "./datum.ts";
import { decodePass, encodeForward, encodePass, type PassPart, type TinkerEncoding } from "./encoding.ts";
import type { ServerModel } from "./server-model.ts";
import type { ServerTraits } from "./servers.ts";
import type { TinkerTransport } from "./transport.ts";
import { ADAM_DEFAULTS, completeAdam } from "../../base/training-rows.ts";
import { zip } from "../../base/util/values.ts";

/** Forward-backward call, as sent to the server. */
interface SentCall {
  readonly rows: readonly Row[];
  readonly loss: LossSpec;
  /** Number of sequences per optimizer step that the loss was scaled for. */
  readonly scale: number;
}

/** Connection to the server and its properties, shared by all models of an engine. */
export interface TrainableContext {
  readonly transport: TinkerTransport;
  readonly traits: ServerTraits;
  readonly encoding: TinkerEncoding;
}

/** Whether a row has a token with a non-zero weight. Rows without one are not sent to the server. */
const isTrained = (row: Row): boolean => row.weights.some((weight) => weight !== 0);

/** Training operations of one model: `forward`, `forwardBackward`, `optimStep` and `resetOptimizer` of the engine port. */
export class Trainable {
  /** Model on the server. Replaced when a state is loaded, because most servers load only into an unused model. */
  server: ServerModel;
  /** Steps since the optimizer was last reset. */
  step = 0;
  /** Steps of the server's optimizer, which its bias correction uses; a reset does not change the count. */
  serverStep = 0;
  readonly #context: TrainableContext;
  /** Calls since the last step; the server has accumulated their gradients. */
  #sentCalls: SentCall[] = [];
  /** Number of sequences in `#sentCalls`. */
  #sequences = 0;
  /** Whether the state of the model on the server is unknown, because a call is running or has failed. */
  #isUncertain = false;

  constructor(server: ServerModel, context: TrainableContext) {
    this.server = server;
    this.#context = context;
  }

  /** Continues with a model on the server into which a saved state was loaded. */
  replace(server: ServerModel, steps: { readonly step: number; readonly serverStep: number }): void {
    this.server = server;
    this.step = steps.step;
    this.serverStep = steps.serverStep;
    this.#forgetCalls();
  }

  /** Computes log-probabilities of the trained tokens of every row; other tokens get 0. */
  async forward(rows: readonly Row[], signal: AbortSignal | undefined): Promise<Logprobs[]> {
    this.#requireCertain();
    const trained = rows.filter(isTrained);
    const logprobs = aligned(rows, await this.#pass("forward", encodeForward(forwardCall(trained)), signal));
    requireFiniteLogprobs(logprobs);
    return logprobs;
  }

  /** Computes log-probabilities and loss of the rows, and adds their gradients on the server. */
  async forwardBackward(rows: readonly Row[], loss: LossSpec, signal: AbortSignal | undefined): ReturnType<Engine["forwardBackward"]> {
    this.#requireCertain();
    requireNoEntropyBonus(loss);
    const completeRows = needsOldLogprobs(rows, loss) ? withOldLogprobs(rows, await this.forward(rows, signal)) : rows;
    // Gradients that are not finite stay on the server, so the model cannot be used after a failure.
    const logprobs = await this.#trackUncertainty(this.#sendFinite(rows, completeRows.filter(isTrained), loss, signal));
    const tokens = rows.reduce((sum, { weights }) => sum + weights.filter((weight) => weight !== 0).length, 0);
    return { logprobs, metrics: { loss: lossValue(rows, loss, logprobs), tokens, entropy: NaN } };
  }

  /** Clips the gradients, applies AdamW and sets the gradients to zero. */
  async optimStep(adam: AdamParams, signal: AbortSignal | undefined): Promise<{ gradNorm: number; step: number }> {
    this.#requireCertain();
    const { learningRate, beta1, beta2, epsilon, weightDecay, maxGradNorm } = completeAdam(adam);
    if (maxGradNorm > 0 && !this.#context.traits.clipsGradients)
      throw new UnsupportedError("This Tinker server does not clip gradients; send max_grad_norm 0", { param: "max_grad_norm" });
    if (this.#context.traits.reduction === "sequence-mean") await this.#correctScales(signal);
    // The server's bias correction uses its own step count. If a reset made the counts differ, learning rate, ε and weight decay are
    // adjusted so that the update equals one computed with the count here.
    const step = this.step + 1;
    const serverStep = this.serverStep + 1;
    const rootRatio = Math.sqrt((1 - beta2 ** step) / (1 - beta2 ** serverStep));
    const rate = (learningRate * rootRatio * (1 - beta1 ** serverStep)) / (1 - beta1 ** step);
    const decay = rate === 0 ? 0 : (weightDecay * learningRate) / rate;
    const adamParams = { learning_rate: rate, beta1, beta2, eps: epsilon * rootRatio, weight_decay: decay, grad_clip_norm: maxGradNorm };
    const gradNorm = await this.#trackUncertainty(this.#step(adamParams, signal));
    this.step = step;
    return { gradNorm, step };
  }

  /**
   * Sets the server's moments to zero by a step with learning rate and betas of 0 and no gradients. If gradients have accumulated, an
   * additional step before it consumes them.
   */
  async resetOptimizer(signal: AbortSignal | undefined): Promise<void> {
    this.#requireCertain();
    const zeroing = { learning_rate: 0, beta1: 0, beta2: 0, eps: ADAM_DEFAULTS.epsilon, weight_decay: 0, grad_clip_norm: 0 };
    const stepCount = this.#sentCalls.length > 0 ? 2 : 1;
    for (let taken = 0; taken < stepCount; taken++) await this.#trackUncertainty(this.#step(zeroing, signal));
    this.step = 0;
  }

  /** Takes one optimizer step on the server and returns the gradient norm; NaN if the server does not report it. */
  async #step(adam: object, signal: AbortSignal | undefined): Promise<number> {
    const { metrics } = await this.server.runJson("optim_step", { adam_params: adam }, stepAnswer, signal);
    if (this.#context.traits.reduction === "sum" && Object.keys(metrics ?? {}).some((name) => name.startsWith("skyrl.ai/")))
      throw new EngineError("The Tinker server is SkyRL, whose losses are means; start the engine with the server kind skyrl");
    this.serverStep++;
    this.#forgetCalls();
    const norm = Object.entries(metrics ?? {}).find(([name]) => /(^|[/:.])grad(ient)?_norm(:|$)/.test(name))?.[1];
    // Servers write NaN as null, because JSON has no NaN.
    if (norm === null) throw new NonFiniteError("Expected a finite gradient norm, the Tinker server reported null");
    return norm ?? NaN;
  }

  /**
   * Corrects the scales of earlier calls before a step, with the reduction `sequence-mean`. The server divides by the number `n` of all
   * sequences since the last step, but a call is scaled by the number that was known when it was sent. The gradient is linear in the scale
   * while the weights do not change. Every call of scale `s` is therefore sent again with the scale `2n − s`: the server then counts `2n`
   * sequences, and both scales add up to `2n`.
   */
  async #correctScales(signal: AbortSignal | undefined): Promise<void> {
    if (this.#sentCalls.every(({ scale }) => scale === this.#sequences)) return;
    const total = 2 * this.#sequences;
    for (const { rows, loss, scale } of [...this.#sentCalls]) await this.#trackUncertainty(this.#send(rows, loss, total - scale, signal));
  }

  /** Sends a forward-backward call of the trained rows; returns finite log-probabilities, aligned with all `rows`. */
  async #sendFinite(rows: readonly Row[], trained: readonly Row[], loss: LossSpec, signal: AbortSignal | undefined): Promise<Logprobs[]> {
    const logprobs = aligned(rows, await this.#send(trained, loss, this.#sequences + trained.length, signal));
    requireFiniteLogprobs(logprobs);
    return logprobs;
  }

  /** Sends a forward-backward call and records it. Returns log-probabilities `[T − 1]` of each row. */
  async #send(rows: readonly Row[], loss: LossSpec, scale: number, signal: AbortSignal | undefined): Promise<Float32Array[]> {
    const { traits, encoding } = this.#context;
    const logprobs = await this.#pass("forward_backward", encodePass(lossCall(rows, loss, traits.reduction, scale), encoding), signal);
    this.#sentCalls.push({ rows, loss, scale });
    this.#sequences += rows.length;
    return logprobs;
  }

  /** Runs a pass. Its parts are submitted in order; the server may compute them in any order. */
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

  /** Awaits an operation. If it fails, the gradients on the server are unknown, and `#requireCertain` rejects further calls. */
  async #trackUncertainty<T>(work: Promise<T>): Promise<T> {
    this.#isUncertain = true;
    const result = await work;
    this.#isUncertain = false;
    return result;
  }

  /** @throws EngineError `E_ENGINE` if the state of the model on the server is unknown. */
  #requireCertain(): void {
    if (this.#isUncertain)
      throw new EngineError(
        "A call on this model was cut off, and what the server made of it is unknown. Load a saved state, or unload it",
      );
  }

  /** Forgets the calls since the last step, whose gradients the server no longer has. */
  #forgetCalls(): void {
    this.#sentCalls = [];
    this.#sequences = 0;
    this.#isUncertain = false;
  }
}

/** Replaces unknown old log-probabilities by the current ones. */
function withOldLogprobs(rows: readonly Row[], current: readonly Logprobs[]): Row[] {
  return zip(rows, current).map(([row, computed]) => ({
    ...row,
    logprobs: row.logprobs!.map((old, t) => (Number.isNaN(old) ? computed[t]! : old)),
  }));
}

/** Expands log-probabilities `[T − 1]` of the trained rows to `[T]` of all rows, with 0 where the weight is 0. */
function aligned(rows: readonly Row[], ofTrainedRows: readonly Float32Array[]): Logprobs[] {
  const remaining = ofTrainedRows.values();
  return rows.map((row) => {
    const logprobs = isTrained(row) ? remaining.next().value! : null;
    return row.weights.map((weight, t) => (weight === 0 || logprobs === null ? 0 : logprobs[t - 1]!));
  });
}

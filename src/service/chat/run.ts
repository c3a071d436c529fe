/** Generation of the choices of an admitted request, and the errors of the engine as the client may receive them. */
import { EngineError, isAbort, NonFiniteError, WhetstoneError } from "../../base/errors.ts";
import type { ChatTokenizer } from "../../text/tokenizer/index.ts";
import type { PolicyLease } from "../models/policies.ts";
import { beamSearch } from "./generate/beam-search.ts";
import { generate, type GenerateOptions, type GeneratedChoice, type GenerationPlan } from "./generate/generate.ts";
import type { PromptEncoder, RenderedPrompt, SplicePoint } from "./prompt/render.ts";
import type { ShapeOptions } from "./answer/shape.ts";
import type { OutputValidation } from "./generate/output-check.ts";

/** Model and prompt of a request. */
export interface OpenedPrompt {
  /** Lease of the model's policy, released with the resources of the request. */
  readonly lease: PolicyLease;
  readonly tokenizer: ChatTokenizer;
  readonly encoder: PromptEncoder;
  /** The prompt before its truncation. */
  readonly fullPrompt: RenderedPrompt;
  /** The prompt, truncated if the request asks for it. */
  readonly prompt: RenderedPrompt;
  /** Whether the request has a prompt instead of messages. */
  readonly isRaw: boolean;
  /** Location at which the finished turns are remembered. */
  readonly splice: SplicePoint;
}

/** An admitted request, ready to generate. */
export interface ChatRun extends Pick<OpenedPrompt, "tokenizer" | "encoder" | "prompt" | "splice"> {
  readonly plan: GenerationPlan;
  readonly shape: ShapeOptions;
  /** Validation of finished texts; null if the grammar enforces everything. */
  readonly check: OutputValidation | null;
}

/** Codes of engine errors that the client receives. */
const CLIENT_CODES: ReadonlySet<string> = new Set(["E_OVERLOADED", "E_UNAVAILABLE", "E_UNSUPPORTED", "E_OUTPUT"]);

/**
 * Generates the choices of a request, by sampling or by beam search.
 *
 * @throws the engine's error if its code is one of {@link CLIENT_CODES}: a full queue, a worker that is restarting, or a constraint that
 *   leaves no token to sample.
 * @throws NonFiniteError `E_NON_FINITE` naming the model, if its weights result in log-probabilities that are not finite.
 * @throws EngineError `E_ENGINE` for every other failure of the engine: the request itself was checked before.
 */
export async function generateRun({ plan, shape }: ChatRun, options: GenerateOptions): Promise<GeneratedChoice[]> {
  try {
    if (!plan.request.useBeamSearch) return await generate(plan, options);
    const choices = await beamSearch(plan, options.signal);
    for (const choice of choices) {
      plan.observer?.choiceFinished({ ...choice, tokens: choice.ids.length });
      await options.onChoice?.(choice);
    }
    return choices;
  } catch (error) {
    if (isAbort(error) || (WhetstoneError.isInstance(error) && CLIENT_CODES.has(error.code))) throw error;
    if (WhetstoneError.isInstance(error) && error.code === "E_NON_FINITE")
      throw new NonFiniteError(`The model '${shape.head.model}' cannot be sampled. ${error.message}`, { cause: error });
    throw new EngineError("The engine failed while it generated", { cause: error });
  }
}

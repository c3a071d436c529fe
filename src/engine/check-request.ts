/** Validation of requests, shared by all engines. */
import { ArgumentError } from "../base/errors.ts";
import { entropyCoefficientOf } from "../base/training-rows.ts";
import { refuse } from "../base/util/values.ts";
import type { BaseModelInfo, LossSpec, Row, SamplingParams } from "./port.ts";

/** Limits of a base model for rows and prompts. */
export type ModelBounds = Pick<BaseModelInfo, "contextLength" | "vocabularySize">;

/**
 * Checks the rows of a forward or forward-backward pass. A row may have one token more than the context, because its last token is only
 * predicted, not read.
 *
 * @param loss - Loss of the pass; null for a forward pass, which needs no advantages and log-probabilities.
 * @throws ArgumentError `E_ARGUMENT`, param `rows`, for the first invalid row; the message has its index. Param `loss` for an entropy
 *   coefficient that is negative or not finite.
 */
export function checkRows(rows: readonly Row[], { contextLength, vocabularySize }: ModelBounds, loss: LossSpec | null): void {
  const coefficient = entropyCoefficientOf(loss);
  if (!Number.isFinite(coefficient) || coefficient < 0)
    throw new ArgumentError(`Expected \`entropyCoefficient\` to be a finite number of at least 0, got ${coefficient}`, { param: "loss" });
  const neededArrays = loss === null || loss.kind === "cross-entropy" ? [] : (["advantages", "logprobs"] as const);
  for (const [index, row] of rows.entries()) {
    const { length } = row.tokens;
    const failRow = (message: string): never => {
      throw new ArgumentError(`Row ${index}: ${message}`, { param: "rows" });
    };
    if (length < 2 || length > contextLength + 1) failRow(`expected 2 to ${contextLength + 1} tokens, got ${length}`);
    if (row.weights.length !== length) failRow(`expected ${length} weights, got ${row.weights.length}`);
    if (row.weights[0] !== 0) failRow(`expected weight 0 for the first token, which nothing predicts, got ${row.weights[0]}`);
    for (const name of neededArrays) {
      if (row[name]?.length !== length) failRow(`expected ${length} ${name} for a ${loss?.kind} loss, got ${row[name]?.length ?? "none"}`);
    }
    for (const token of row.tokens)
      if (token < 0 || token >= vocabularySize) failRow(`expected token ids in [0, ${vocabularySize}), got ${token}`);
    for (const weight of row.weights) if (!Number.isFinite(weight)) failRow(`expected finite weights, got ${weight}`);
  }
}

/** Limits of a base model and of the engine for sampling. */
export interface SamplingBounds extends ModelBounds {
  /** Maximum of `topLogprobs` and of `promptLogprobs`. */
  readonly maxTopLogprobs: number;
}

/**
 * Checks the prompt and the numeric parameters of a sampling request.
 *
 * @throws ArgumentError `E_ARGUMENT` naming the parameter that is out of range.
 */
export function checkSampling(prompt: Int32Array, params: SamplingParams, bounds: SamplingBounds): void {
  const { contextLength, vocabularySize, maxTopLogprobs } = bounds;
  if (prompt.length < 1 || prompt.length >= contextLength) refuse("prompt", `1 to ${contextLength - 1} tokens`, prompt.length);
  for (const token of prompt) if (token < 0 || token >= vocabularySize) refuse("prompt", `token ids in [0, ${vocabularySize})`, token);
  const { maxTokens, temperature, topP, topK, topLogprobs, promptLogprobs = 0 } = params;
  if (!(maxTokens >= 1)) refuse("maxTokens", "at least 1", maxTokens);
  if (!(temperature >= 0)) refuse("temperature", "at least 0", temperature);
  if (!(topP > 0 && topP <= 1)) refuse("topP", "in (0, 1]", topP);
  if (!(topK >= 0)) refuse("topK", "at least 0", topK);
  if (!(topLogprobs >= 0 && topLogprobs <= maxTopLogprobs)) refuse("topLogprobs", `0 to ${maxTopLogprobs}`, topLogprobs);
  if (!(promptLogprobs >= 0 && promptLogprobs <= maxTopLogprobs)) refuse("promptLogprobs", `0 to ${maxTopLogprobs}`, promptLogprobs);
}

/** Requests whose tokens a graph can draw, and their inputs. */
import { uniform } from "../../../base/util/rng.ts";
import type { SamplingParams } from "../../port.ts";
import { BELOW_ONE, type DrawInputs, MAX_INVERSE_TEMPERATURE } from "./draw-graph.ts";
import type { Request, RunningRow } from "./request.ts";

/**
 * Whether the next token of a request depends only on the logits, the temperature and the seed, and only its log-probability is returned.
 * The parameters of a request decide alone, so its results do not depend on the rest of the batch.
 */
export function isPlain({ params, rules, constraint }: Pick<Request, "params" | "rules" | "constraint">, vocabularySize: number): boolean {
  const { temperature, minP = 0, topK, topP, topLogprobs } = params;
  const isFiltered = minP > 0 || topP < 1 || (topK > 0 && topK < vocabularySize);
  return rules === null && constraint === null && topLogprobs === 0 && (temperature === 0 || !isFiltered);
}

/** Returns the random numbers and temperatures of the rows. @param size - Number of rows with padding. */
export function drawInputs(rows: readonly RunningRow<{ readonly params: DrawParams }>[], size: number): DrawInputs {
  const uniforms = new Float32Array(size);
  const inverseTemperatures = new Float32Array(size).fill(1);
  rows.forEach(({ request: { params }, sampled }, row) => {
    inverseTemperatures[row] = Math.min(1 / params.temperature, MAX_INVERSE_TEMPERATURE);
    // Rounded to float32, a number close to 1 would be 1.
    if (params.temperature > 0) uniforms[row] = Math.min(uniform(params.seed, sampled), BELOW_ONE);
  });
  return { uniforms, inverseTemperatures };
}

type DrawParams = Pick<SamplingParams, "temperature" | "seed">;

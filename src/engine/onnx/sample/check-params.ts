/** Validation of the sampling parameters that change logits. */
import { refuse } from "../../../base/util/values.ts";
import type { SamplingParams } from "../../port.ts";

/** Lists checked before, with the vocabulary size they were checked against: the choices of a request share their lists. */
const checked = new WeakMap<object, number>();

/**
 * Checks the parameters of a request that change its logits.
 *
 * @throws ArgumentError `E_ARGUMENT` naming the parameter that is out of bounds.
 */
export function checkLogitParams(params: SamplingParams, vocabularySize: number): void {
  const { minP = 0, minTokens = 0, repetitionPenalty = 1, frequencyPenalty = 0, presencePenalty = 0, allowedTokenIds } = params;
  const ids = (param: string, values: Iterable<number>): void => {
    for (const id of values)
      if (!(Number.isInteger(id) && id >= 0 && id < vocabularySize)) refuse(param, `token ids in [0, ${vocabularySize})`, id);
  };
  const once = <T extends object>(list: T | undefined, check: (list: T) => void): void => {
    if (list === undefined || checked.get(list) === vocabularySize) return;
    check(list);
    checked.set(list, vocabularySize);
  };
  if (!(minP >= 0 && minP <= 1)) refuse("minP", "in [0, 1]", minP);
  if (!(minTokens >= 0)) refuse("minTokens", "at least 0", minTokens);
  if (!(repetitionPenalty > 0 && repetitionPenalty < Infinity)) refuse("repetitionPenalty", "above 0", repetitionPenalty);
  if (!Number.isFinite(frequencyPenalty)) refuse("frequencyPenalty", "a finite number", frequencyPenalty);
  if (!Number.isFinite(presencePenalty)) refuse("presencePenalty", "a finite number", presencePenalty);
  if (allowedTokenIds?.length === 0) refuse("allowedTokenIds", "at least one id", "none");
  once(allowedTokenIds, (list) => ids("allowedTokenIds", list));
  ids("lateTokenIds", params.lateTokenIds ?? []);
  once(params.logitBias, (bias) => {
    ids("logitBias", bias.keys());
    for (const value of bias.values()) if (!Number.isFinite(value)) refuse("logitBias", "finite numbers", value);
  });
  once(params.bannedSequences, (sequences) => {
    for (const sequence of sequences) {
      if (sequence.length === 0) refuse("bannedSequences", "sequences of at least one id", "an empty one");
      ids("bannedSequences", sequence);
    }
  });
}

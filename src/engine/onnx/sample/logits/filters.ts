/** Sampling steps that shape the distribution that a token is drawn from. Each works in place on one row of logits `[V]`; −∞ stays −∞. */
import { argmax } from "./draw.ts";
import { kthLargest, nucleusFloor } from "./select.ts";

/** Divides by the temperature, after moving the largest logit to 0 so that a small temperature cannot overflow. */
export function applyTemperature(logits: Float32Array, temperature: number): void {
  const best = logits[argmax(logits)]!;
  for (let id = 0; id < logits.length; id++) logits[id] = (logits[id]! - best) / temperature;
}

/** Removes the tokens with a probability below `minP` times the largest probability. */
export function keepMinP(logits: Float32Array, minP: number): void {
  removeBelow(logits, logits[argmax(logits)]! + Math.log(minP));
}

/** Removes the tokens with a logit below the `topK`-th largest; ties with it stay. */
export function keepTopK(logits: Float32Array, topK: number): void {
  if (topK < logits.length) removeBelow(logits, kthLargest(logits, topK));
}

/** Keeps the likeliest tokens until the probability of strictly likelier tokens reaches `topP`; ties stay together. */
export function keepTopP(logits: Float32Array, topP: number): void {
  const best = logits[argmax(logits)]!;
  if (best > -Infinity) removeBelow(logits, nucleusFloor(logits, best, topP));
}

function removeBelow(logits: Float32Array, floor: number): void {
  for (let id = 0; id < logits.length; id++) if (logits[id]! < floor) logits[id] = -Infinity;
}

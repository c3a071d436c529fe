/** Weight of a training example, shared by the schemas of trajectories and by the parsers of training data. */

import { z } from "zod";

const [MIN_WEIGHT, MAX_WEIGHT] = [1e-6, 1e6];
/** Message for a weight outside of the bounds, also for values that are no number. */
const error = ({ input }: { readonly input?: unknown }) =>
  `expected a number from ${MIN_WEIGHT} to ${MAX_WEIGHT}, got ${JSON.stringify(input)}`;

/**
 * Schema of the `weight` of a training example: the factor of each of its trained tokens in the weighted mean loss. Within these bounds no
 * sum overflows, and float32 resolves the share of every token in a batch.
 */
export const exampleWeight = z.number({ error }).min(MIN_WEIGHT, { error }).max(MAX_WEIGHT, { error });

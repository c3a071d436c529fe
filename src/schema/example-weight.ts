import { z } from "zod";

const [MIN, MAX] = [1e-6, 1e6];
const error = ({ input }: { readonly input?: unknown }) => `expected a number from ${MIN} to ${MAX}, got ${JSON.stringify(input)}`;

/**
 * The `weight` of an example to learn from: what each of its trained tokens counts beside those of other examples. Within these bounds
 * no sum overflows, and float32 keeps every token's share of a batch.
 */
export const exampleWeight = z.number({ error }).min(MIN, { error }).max(MAX, { error });

/**
 * Weights of a base up to which there is a copy of them per thread: rows of a step are trained in two shares side by side, and
 * requests are sampled on several threads. The products of such models are too narrow for two threads inside one; those of larger
 * ones are not, and a second copy would need too much memory.
 */
export const MAX_SHARED_WEIGHTS = 16e6;

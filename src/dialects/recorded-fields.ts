/** Fields of the schemas of recorded answers. Servers other than this service leave out more fields than its own schemas permit. */
import { z } from "zod";

/** Token ids. */
export const tokenIds = z.array(z.int()).nullish();
/** Log-probabilities. */
export const logprobValues = z.array(z.number()).nullish();
/** Texts of tokens. */
export const tokenTexts = z.array(z.string()).nullish();
/** Output item or content block; its other members are read by the translation of its type. */
export const typedObject = z.looseObject({ type: z.string() });

/** Fields of the schemas of recorded answers. Servers other than this service leave out more fields than its own schemas permit. */
import { z } from "zod";

export const ids = z.array(z.int()).nullish();
export const numbers = z.array(z.number()).nullish();
export const texts = z.array(z.string()).nullish();
export const typed = z.looseObject({ type: z.string() });

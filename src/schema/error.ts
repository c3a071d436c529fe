import { z } from "zod";

/** The one error shape of every route. `code` is the HTTP status on chat routes, a permanent string elsewhere. */
export const errorBody = z.object({
  error: z.object({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.union([z.string(), z.number()]).nullable(),
  }),
});
export type ErrorBody = z.infer<typeof errorBody>;

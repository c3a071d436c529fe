/** Schema of the body of error answers. */

import { z } from "zod";

/** Schema of {@link ErrorBody}. */
export const errorBody = z.object({
  /** Description of the failure. */
  error: z.object({
    /** Expected value, received value and remedy. The wording may change. */
    message: z.string(),
    /** Class of the error, such as `NotFoundError`. */
    type: z.string(),
    /** Path of the offending field, parameter or header. */
    param: z.string().nullable(),
    /** HTTP status; inside a stream, the status that the error would have had before the stream began. */
    code: z.int(),
    /** Permanent code, such as `E_NOT_FOUND`. */
    error_code: z.string(),
    /** Text that violated its schema, with `E_OUTPUT`. */
    failed_generation: z.string().optional(),
  }),
});
/** Error body of every route, and of an error event inside a stream. @interface */
export type ErrorBody = z.infer<typeof errorBody>;

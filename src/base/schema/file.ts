/** Schemas of files: uploaded training data, and results of fine-tuning jobs, in the format of the OpenAI API. */

import { z } from "zod";
import { listOf, newestFirstQuery } from "./common.ts";

/** Schema of {@link FileExpiry}. */
export const fileExpiry = z.strictObject({
  /** Start of the lifetime. */
  anchor: z.literal("created_at"),
  /** Lifetime in seconds, 3600 (1 hour) to 2,592,000 (30 days). */
  seconds: z.coerce.number().int().min(3600).max(2_592_000),
});
/** Lifetime of an uploaded file. @interface */
export type FileExpiry = z.infer<typeof fileExpiry>;

/** Schema of {@link CreateFileFields}. */
export const createFileFields = z.strictObject({
  /** Use of the file; only `fine-tune` is supported. */
  purpose: z.literal("fine-tune"),
  /** Lifetime, in the form fields `expires_after[anchor]` and `expires_after[seconds]`. @default null, until it is deleted */
  expires_after: fileExpiry.nullish(),
});
/** Fields of the form of `POST /v1/files`, in addition to the file. @interface */
export type CreateFileFields = z.infer<typeof createFileFields>;

/** Schema of {@link FileObject}. */
export const fileObject = z.object({
  /** Identifier, `file-…`. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("file"),
  /** Size in bytes. */
  bytes: z.int().min(0),
  /** Time of the upload in seconds since 1970. */
  created_at: z.int(),
  /** Time in seconds since 1970 from which the file does not exist; absent for a file that stays until it is deleted. */
  expires_at: z.int().optional(),
  /** Name of the file, as the client sent it. */
  filename: z.string(),
  /** `fine-tune` for uploads, `fine-tune-results` for files of a job. */
  purpose: z.string(),
  /** Always `processed`: a file can be used as soon as its upload is answered. */
  status: z.literal("processed"),
});
/** Properties of an uploaded file, or of one that a fine-tuning job made. @interface */
export type FileObject = z.infer<typeof fileObject>;

/** Schema of {@link FileQuery}. */
export const fileQuery = newestFirstQuery.extend({
  /** Files per page, 1 to 10,000. @default 10,000 */
  limit: z.coerce.number().int().min(1).max(10_000).default(10_000),
  /** Order by time of creation. @default "desc" */
  order: z.literal(["asc", "desc"]).default("desc"),
  /** Only files with this purpose. */
  purpose: z.string().max(64).optional(),
});
/** Query parameters of `GET /v1/files`. @interface */
export type FileQuery = z.infer<typeof fileQuery>;

/** Schema of {@link FileList}. */
export const fileList = listOf(fileObject);
/** Answer of `GET /v1/files`: a page of files. @interface */
export type FileList = z.infer<typeof fileList>;

/** Schema of {@link DeletedFile}. */
export const deletedFile = z.object({
  /** Identifier of the deleted file. */
  id: z.string(),
  /** Type of the object in the wire format. */
  object: z.literal("file"),
  /** Always true: an unknown file is answered 404. */
  deleted: z.literal(true),
});
/** Answer of `DELETE /v1/files/{file_id}`. @interface */
export type DeletedFile = z.infer<typeof deletedFile>;

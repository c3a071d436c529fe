/** The routes of files, in the format of the OpenAI API. */
import {
  createFileFields,
  deletedFile,
  fileList,
  fileObject,
  fileQuery,
  type DeletedFile,
  type FileList,
} from "../../base/schema/index.ts";
import { ConflictError } from "../../base/errors.ts";
import { fileToWire, openFile, storeUpload } from "../fine-tuning/files.ts";
import { deleteArtifact } from "../history/deletion.ts";
import { readQuery, type ServiceRequest } from "../http/body.ts";
import { formBoundary } from "../http/multipart.ts";
import { webStream } from "../http/web-stream.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { getFile, pageOfFiles } from "../store/files.ts";
import { pageBody } from "../store/paging.ts";
import type { RouteContext } from "./context.ts";

const PATH = "/v1/files";
const common = { tag: "Fine-tuning", isExtension: true, validationStatus: 400 } as const;

/** Converts a conflict of an artifact version to a conflict of the file that the client named; returns other errors unchanged. */
function toFileError(error: unknown, id: string): unknown {
  if (!(error instanceof ConflictError)) return error;
  const message = `File '${id}' cannot be deleted while a job that is not over reads it. Wait for the job, or cancel it`;
  return new ConflictError(message, { cause: error, param: "file_id" });
}

/** Creates the routes that upload, list, read and delete files. */
export function fileRoutes(context: RouteContext): Route[] {
  const idOf = (c: ServiceRequest) => pathParameter(c, "file_id");
  return [
    {
      ...common,
      method: "POST",
      path: PATH,
      id: "createFile",
      access: ["train"],
      summary: "Upload a file with training data",
      description: "The file is streamed to disk. Its lines are checked when a job is created.",
      body: { form: createFileFields, file: "file" },
      answer: fileObject,
      handle: async (c) => {
        const { headers } = c.env.incoming;
        const boundary = formBoundary(headers["content-type"]);
        const body = (c.req.raw.body ?? new Blob([]).stream()) as AsyncIterable<Uint8Array>;
        const statedBytes = Number(headers["content-length"] ?? 0);
        return c.json(fileToWire(await storeUpload(context.of(c), { body, boundary, statedBytes })));
      },
    },
    {
      ...common,
      method: "GET",
      path: PATH,
      id: "listFiles",
      access: ["train", "read"],
      summary: "List files",
      query: fileQuery,
      answer: fileList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfFiles(context.of(c).store, readQuery(c, fileQuery));
        return c.json(pageBody(rows.map(fileToWire), hasMore) satisfies FileList);
      },
    },
    {
      ...common,
      method: "GET",
      path: `${PATH}/{file_id}`,
      id: "getFile",
      access: ["train", "read"],
      summary: "Read a file's properties",
      answer: fileObject,
      handle: async (c) => c.json(fileToWire(await getFile(context.of(c).store, idOf(c), "file_id"))),
    },
    {
      ...common,
      method: "GET",
      path: `${PATH}/{file_id}/content`,
      id: "getFileContent",
      access: ["train", "read"],
      summary: "Read a file's contents",
      answer: { description: "The bytes of the file.", content: { "application/octet-stream": "binary" } },
      handle: async (c) => {
        const { row, content } = await openFile(context.of(c), idOf(c));
        return new Response(webStream(content), {
          headers: { "Content-Type": "application/octet-stream", "Content-Length": String(row.size_bytes) },
        });
      },
    },
    {
      ...common,
      method: "DELETE",
      path: `${PATH}/{file_id}`,
      id: "deleteFile",
      access: ["train"],
      summary: "Delete a file",
      description: "While a job that is not over reads the file, the answer is 400.",
      answer: deletedFile,
      handle: async (c) => {
        const { id, artifact_id: artifactId } = await getFile(context.of(c).store, idOf(c), "file_id");
        await deleteArtifact(context.of(c), artifactId).catch((error: unknown) => Promise.reject(toFileError(error, id)));
        return c.json({ id, object: "file", deleted: true } satisfies DeletedFile);
      },
    },
  ];
}

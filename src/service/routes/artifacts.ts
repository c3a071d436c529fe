/** The routes of artifacts: an open version receives files, and is then committed, after which it cannot change. */
import { requireBytes } from "../store/entities.ts";
import { randomUUID } from "node:crypto";
import type { Readable } from "node:stream";
import { ConflictError, ArgumentError, NotFoundError, TooLargeError } from "../../base/errors.ts";
import {
  deleteArtifactResponse,
  artifactFile,
  artifactList,
  artifactPath,
  artifactQuery,
  artifactVersion,
  createArtifactRequest,
  type ArtifactFile,
  type ArtifactList,
  type ArtifactSummary,
  type ArtifactVersion,
  type CreateArtifactRequest,
  type JsonObject,
} from "../../base/schema/index.ts";
import { readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import { removeBlob, requireBlob } from "../artifacts/remove-blob.ts";
import type { RouteContext, ServiceContext } from "./context.ts";
import { createOnce, type Creation } from "../http/idempotency.ts";
import { artifactUrl, type QualifiedName } from "../common/names.ts";
import { deleteArtifact } from "../history/deletion.ts";
import { getArtifact, pageOfArtifacts, type StoredArtifact, type SummarizedArtifact } from "../store/artifacts.ts";
import { pageBody } from "../store/paging.ts";
import type { ArtifactFileRow, ArtifactRow } from "../store/tables.ts";
import { entityFor } from "../store/visibility.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { webStream } from "../http/web-stream.ts";
import { transact } from "../store/database.ts";

const PATH = "/v1/preview/artifacts";
const FILES = `${PATH}/{artifact_id}/files/{path}`;
const common = { tag: "Artifacts", isExtension: true } as const;

/** Converts a file to its form in answers. */
function fileToWire({ path, size_bytes, sha256 }: ArtifactFileRow): ArtifactFile {
  return { path, size_bytes, sha256 };
}

/** Returns the members that versions and summaries have in common. */
function describe(artifact: ArtifactRow & Pick<StoredArtifact, "state">): Omit<ArtifactVersion, "files"> {
  const { id, entity, project, name, version, state, created_at } = artifact;
  const metadata = JSON.parse(artifact.metadata) as JsonObject;
  return { id, entity, project, name, version, state, url: artifactUrl(artifact), metadata, created_at };
}

/** Converts a version with its files to its form in answers. */
function toWire(artifact: StoredArtifact): ArtifactVersion {
  return { ...describe(artifact), files: artifact.files.map(fileToWire) };
}

/** Converts a version to its form in a list, with the number of its files. */
function summaryToWire(artifact: SummarizedArtifact): ArtifactSummary {
  return { ...describe(artifact), file_count: artifact.file_count, bytes: artifact.bytes };
}

/**
 * Returns the path after `/files/`, taken from the URL as the client sent it, because a router may normalize `..` before it can be rejected.
 *
 * @throws ArgumentError `E_ARGUMENT`, param `path`, for a path that is not valid.
 */
function filePath(c: ServiceRequest): string {
  const url = c.env.incoming.url ?? "";
  const [, encodedPath = ""] = /^[^?]*?\/files\/([^?]*)/.exec(url) ?? [];
  let path: string;
  try {
    path = decodeURIComponent(encodedPath);
  } catch (cause) {
    throw new ArgumentError("Expected the path of a file in percent-encoded UTF-8", { cause, param: "path" });
  }
  const result = artifactPath.safeParse(path);
  if (!result.success)
    throw new ArgumentError(`The path '${path.slice(0, 200)}' ${result.error.issues[0]?.message ?? "is invalid"}`, { param: "path" });
  return path;
}

/** Creates the routes of artifact versions: open, upload files, commit, read. */
export function artifactRoutes(context: RouteContext): Route[] {
  const { space } = context;
  const idOf = (c: ServiceRequest) => pathParameter(c, "artifact_id");
  return [
    {
      ...common,
      method: "POST",
      path: PATH,
      id: "createArtifactVersion",
      access: ["train"],
      summary: "Open the next version of an artifact",
      isIdempotent: true,
      body: createArtifactRequest,
      answer: artifactVersion,
      errors: [409],
      handle: async (c) => {
        const { value, digest } = await readJson(c, "artifact", context.work.bodies);
        const { store } = context.of(c);
        const name = { entity: entityFor(store, value.entity, "entity"), project: value.project, name: value.name };
        return createOnce(c, store, { digest, prepare: () => space.requireSpace().then(() => openVersion(name, value)) });
      },
    },
    {
      ...common,
      method: "GET",
      path: PATH,
      id: "listArtifactVersions",
      access: ["train", "read"],
      summary: "List versions, newest first",
      query: artifactQuery,
      answer: artifactList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfArtifacts(context.of(c).store, readQuery(c, artifactQuery));
        return c.json(pageBody(rows.map(summaryToWire), hasMore) satisfies ArtifactList);
      },
    },
    {
      ...common,
      method: "GET",
      path: `${PATH}/{artifact_id}`,
      id: "getArtifactVersion",
      access: ["train", "read"],
      summary: "Read a version",
      answer: artifactVersion,
      handle: async (c) => c.json(toWire(await getArtifact(context.of(c).store, idOf(c)))),
    },
    {
      ...common,
      method: "DELETE",
      path: `${PATH}/{artifact_id}`,
      id: "deleteArtifactVersion",
      access: ["train"],
      summary: "Delete a version with its files",
      description: "While a job that is not over reads the version, the answer is 409.",
      answer: deleteArtifactResponse,
      errors: [409],
      handle: async (c) => c.json(await deleteArtifact(context.of(c), idOf(c))),
    },
    {
      ...common,
      method: "POST",
      path: `${PATH}/{artifact_id}/commit`,
      id: "commitArtifactVersion",
      access: ["train"],
      summary: "Make a version immutable and usable",
      description: "Committing again has no effect. A version without files cannot be committed: 409.",
      answer: artifactVersion,
      errors: [409],
      handle: async (c) => c.json(toWire(await commitVersion(context.of(c), idOf(c)))),
    },
    {
      ...common,
      method: "PUT",
      path: FILES,
      id: "putArtifactFile",
      access: ["train"],
      summary: "Store the body as a file of an open version",
      description: "The same path again replaces the file.",
      body: "binary",
      answer: artifactFile,
      errors: [409],
      handle: async (c) => c.json(await putFile(context.of(c), c, idOf(c))),
    },
    {
      ...common,
      method: "GET",
      path: FILES,
      id: "getArtifactFile",
      access: ["train", "read"],
      summary: "Read a file",
      answer: {
        description: "The bytes of the file.",
        content: { "application/octet-stream": "binary" },
        headers: { ETag: "The SHA-256 of the file, hexadecimal." },
      },
      handle: async (c) => {
        const { file, content } = await openFile(context.of(c), idOf(c), filePath(c));
        return new Response(webStream(content), {
          headers: { "Content-Type": "application/octet-stream", "Content-Length": String(file.size_bytes), ETag: `"${file.sha256}"` },
        });
      },
    },
  ];
}

/**
 * Opens the content of a file. The content of a damaged file ends with an error before its last byte. Replacing the file afterwards does
 * not affect the reader.
 */
async function openFile(
  { store, files }: Pick<ServiceContext, "store" | "files">,
  id: string,
  path: string,
): Promise<{ readonly file: ArtifactFileRow; readonly content: Readable }> {
  const artifact = await getArtifact(store, id);
  const file = fileAt(artifact, path);
  try {
    return { file, content: await files.openBlob(artifact, file) };
  } catch (error) {
    // The file may have been replaced after its row was read; then the new one is opened.
    const { sha256 } = fileAt(await getArtifact(store, id), path);
    if (sha256 === file.sha256) throw error;
    return openFile({ store, files }, id, path);
  }
}

/** Returns the file at a path. @throws NotFoundError `E_NOT_FOUND` listing up to ten existing files. */
function fileAt(artifact: StoredArtifact, path: string): ArtifactFileRow {
  const file = artifact.files.find((candidate) => candidate.path === path);
  if (file !== undefined) return file;
  const firstPaths = artifact.files.slice(0, 10).map((other) => other.path);
  const listed = firstPaths.length > 0 ? firstPaths.join(", ") : "none";
  throw new NotFoundError(`Artifact '${artifactUrl(artifact)}' has no file '${path}'; its files: ${listed}`, { param: "path" });
}

/** Creates the next version of an artifact, which is open. */
function openVersion(name: QualifiedName, { metadata }: CreateArtifactRequest): Creation {
  return {
    async commit(store) {
      const { lastVersion } = await store
        .selectFrom("artifacts")
        .select((eb) => eb.fn.max<number | null>("version").as("lastVersion"))
        .where((where) => where.and(name))
        .executeTakeFirstOrThrow();
      const row: Omit<StoredArtifact, "files"> = {
        id: randomUUID(),
        ...name,
        version: lastVersion === null ? 0 : lastVersion + 1,
        state: "open",
        metadata: JSON.stringify(metadata ?? {}),
        created_at: new Date().toISOString(),
      };
      await store.insertInto("artifacts").values(row).execute();
      return toWire({ ...row, files: [] });
    },
  };
}

/** Checks that a version can change. @throws ConflictError `E_CONFLICT` for a committed one. */
function requireOpen(artifact: StoredArtifact): void {
  if (artifact.state === "open") return;
  throw new ConflictError(
    `Artifact '${artifactUrl(artifact)}' is committed and cannot change. Open a new version with POST /v1/preview/artifacts`,
    { param: "artifact_id" },
  );
}

/** Stores the body of a request as a file of an open version, and removes the blob that it replaces. */
async function putFile(context: ServiceContext, c: ServiceRequest, id: string): Promise<ArtifactFile> {
  const { store, blobs, limits, space } = context;
  const path = filePath(c);
  requireOpen(await getArtifact(store, id));
  const statedBytes = Number(c.env.incoming.headers["content-length"] ?? 0);
  if (statedBytes > limits.maxArtifactFileBytes) {
    throw new TooLargeError(`Expected a file of at most ${limits.maxArtifactFileBytes} bytes. Split it, or raise the service's limit`, {
      param: "path",
    });
  }
  await space.requireSpace(statedBytes);
  const body = c.req.raw.body ?? new Blob([]).stream();
  const blob = await blobs.write(body as AsyncIterable<Uint8Array>, { maxBytes: limits.maxArtifactFileBytes });
  const { sha256, sizeBytes } = blob;
  /** SHA-256 of the blob to remove afterwards: the new one, or, once the row is committed, the one that it has replaced. */
  let unusedBlob: string | undefined = sha256;
  try {
    return await transact(store, async (transaction) => {
      // The transaction may run again after a conflict.
      unusedBlob = sha256;
      // The version may have been committed while the body arrived.
      const artifact = await getArtifact(transaction, id);
      requireOpen(artifact);
      await requireBytes(transaction, artifact.entity, sizeBytes);
      await requireBlob(transaction, blobs, blob);
      const row: ArtifactFileRow = { artifact_id: artifact.id, path, size_bytes: sizeBytes, sha256 };
      await transaction
        .insertInto("artifact_files")
        .values(row)
        .onConflict((conflict) => conflict.columns(["artifact_id", "path"]).doUpdateSet({ size_bytes: sizeBytes, sha256 }))
        .execute();
      unusedBlob = artifact.files.find((file) => file.path === path)?.sha256;
      return fileToWire(row);
    });
  } finally {
    blob.release();
    // Keeps a blob that any row names, also if the file was replaced by one with the same content.
    if (unusedBlob !== undefined) await removeBlob(context, unusedBlob);
  }
}

/** Commits a version. Has no effect on a committed one. */
function commitVersion({ store }: ServiceContext, id: string): Promise<StoredArtifact> {
  return transact(store, async (transaction) => {
    const artifact = await getArtifact(transaction, id);
    if (artifact.state === "committed") return artifact;
    if (artifact.files.length === 0) {
      throw new ConflictError(
        `Artifact '${artifactUrl(artifact)}' has no file. Put at least one with PUT /v1/preview/artifacts/${artifact.id}/files/{path}`,
        { param: "artifact_id" },
      );
    }
    await transaction.updateTable("artifacts").set({ state: "committed" }).where("id", "=", artifact.id).execute();
    return { ...artifact, state: "committed" as const };
  });
}

/** Files of the fine-tuning interface: uploads, and their form in answers. */
import type { Readable } from "node:stream";
import { ArgumentError, TooLargeError, UnsupportedError } from "../../base/errors.ts";
import { first } from "../../base/util/values.ts";
import { requireValid } from "../../base/util/validation.ts";
import { createFileFields, type CreateFileFields, type FileObject } from "../../base/schema/index.ts";
import type { BlobStore, WrittenBlob } from "../artifacts/blob-store.ts";
import { removeBlob, requireBlob, type BlobContext } from "../artifacts/remove-blob.ts";
import type { ServiceLimits } from "../common/limits.ts";
import type { DiskSpace } from "../disk/space.ts";
import { readForm, type FormPart } from "../http/multipart.ts";
import { getArtifact } from "../store/artifacts.ts";
import { getFile, insertFile } from "../store/files.ts";
import type { FileRow, Store } from "../store/tables.ts";
import { entityFor } from "../store/visibility.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { transact } from "../store/database.ts";

/** Path of an uploaded file in its artifact version, from which training jobs read their examples. */
const DATA_PATH = "train.jsonl";
/** Max bytes of a field of the form other than the file. */
const MAX_FIELD_BYTES = 1024;
/** Max characters of the name of a file. */
const MAX_FILENAME_CHARACTERS = 256;
/** Max bytes of a form without its file. */
const MAX_FORM_BYTES = 64 * 1024;

/** Fields of the form besides the file. */
const FIELD_NAMES = ["purpose", "expires_after[anchor]", "expires_after[seconds]"];

/** Parts of the service that an upload needs. */
export interface UploadContext extends BlobContext {
  readonly blobs: BlobStore;
  readonly limits: Pick<ServiceLimits, "maxArtifactFileBytes">;
  readonly space: Pick<DiskSpace, "requireSpace">;
}

/** Body of an upload. */
export interface Upload {
  readonly body: AsyncIterable<Uint8Array>;
  readonly boundary: string;
  /** Value of `Content-Length`; 0 if unknown. */
  readonly statedBytes: number;
}

/** Converts a time to seconds since 1970. */
export function toSeconds(time: string): number {
  return Math.floor(Date.parse(time) / 1000);
}

/** Converts a file to its form in answers. */
export function fileToWire({ id, filename, purpose, size_bytes, created_at, expires_at }: FileRow): FileObject {
  return {
    id,
    object: "file",
    bytes: size_bytes,
    created_at: toSeconds(created_at),
    ...(expires_at === null ? {} : { expires_at: toSeconds(expires_at) }),
    filename,
    purpose,
    status: "processed",
  };
}

/**
 * Stores the file of a form. After an error nothing of the file is left.
 *
 * @throws ArgumentError `E_ARGUMENT` for an incomplete form, and for a missing, unknown or invalid field.
 * @throws UnsupportedError `E_UNSUPPORTED` for a purpose other than `fine-tune`.
 * @throws TooLargeError `E_TOO_LARGE` for a file over `maxArtifactFileBytes`.
 * @throws NoSpaceError `E_NO_SPACE` if the disk has no room.
 */
export async function storeUpload(context: UploadContext, { body, boundary, statedBytes }: Upload): Promise<FileRow> {
  const { store, blobs, limits, space } = context;
  const maxBytes = limits.maxArtifactFileBytes;
  if (statedBytes > maxBytes + MAX_FORM_BYTES)
    throw new TooLargeError(`Expected a file of at most ${maxBytes} bytes. Split it, or raise the service's limit`, { param: "file" });
  await space.requireSpace(statedBytes);
  const entity = entityFor(store, null, "file");
  /** Texts of the fields by name. */
  const texts = new Map<string, string>();
  let upload: UploadedFile | null = null;
  try {
    for await (const part of readForm(body, boundary)) {
      if (part.name !== "file") addField(texts, part.name, await readFieldText(part));
      else if (upload !== null) throw new ArgumentError("Expected one `file`, got several", { param: "file" });
      else {
        const filename = requireFilename(part);
        upload = { filename, blob: await blobs.write(part.content, { maxBytes }) };
      }
    }
    const { expires_after: expiry } = fieldsOf(texts);
    const { filename, blob } = requireContents(upload);
    const { sha256, sizeBytes } = blob;
    const file = {
      entity,
      filename,
      purpose: "fine-tune",
      path: DATA_PATH,
      sha256,
      sizeBytes,
      expiresAfterSeconds: expiry?.seconds ?? null,
    };
    return await transact(store, async (transaction) => {
      await requireBlob(transaction, blobs, blob);
      return insertFile(transaction, file);
    });
  } finally {
    upload?.blob.release();
    // Keeps the blob if the file was inserted.
    if (upload !== null) await removeBlob(context, upload.blob.sha256);
  }
}

/** File of a form whose contents are written. */
interface UploadedFile {
  readonly filename: string;
  readonly blob: WrittenBlob;
}

/** Returns the file of a form. @throws ArgumentError `E_ARGUMENT` without one, and for an empty one */
function requireContents(upload: UploadedFile | null): UploadedFile {
  if (upload !== null && upload.blob.sizeBytes > 0) return upload;
  throw new ArgumentError(`Expected a form with a \`file\` that has contents, got ${upload === null ? "none" : "an empty file"}`, {
    param: "file",
  });
}

/** Adds a field of the form. Its name and the purpose are checked as soon as they have arrived, before a long file is read. */
function addField(texts: Map<string, string>, name: string, text: string): void {
  const shownName = name.slice(0, 80);
  if (!FIELD_NAMES.includes(name))
    throw new ArgumentError(`The form has the unknown field \`${shownName}\`; allowed: file, ${FIELD_NAMES.join(", ")}`, {
      param: shownName,
    });
  if (name === "purpose" && text !== ("fine-tune" satisfies CreateFileFields["purpose"]))
    throw new UnsupportedError(
      `Expected \`purpose\` to be "fine-tune", got ${JSON.stringify(text.slice(0, 80))}: the service has no use for other files`,
      { param: "purpose" },
    );
  if (texts.has(name)) throw new ArgumentError(`Expected one field \`${name}\`, got several`, { param: name });
  texts.set(name, text);
}

/** Validates the fields of a form. @throws ArgumentError `E_ARGUMENT` for a missing or invalid one */
function fieldsOf(texts: ReadonlyMap<string, string>): CreateFileFields {
  const anchor = texts.get("expires_after[anchor]");
  const seconds = texts.get("expires_after[seconds]");
  const hasExpiry = anchor !== undefined || seconds !== undefined;
  return requireValid(createFileFields, { purpose: texts.get("purpose"), expires_after: hasExpiry ? { anchor, seconds } : null });
}

/** Reads the text of a field. @throws ArgumentError `E_ARGUMENT` for more than {@link MAX_FIELD_BYTES} */
async function readFieldText({ name, content }: FormPart): Promise<string> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of content) {
    length += part.length;
    if (length > MAX_FIELD_BYTES)
      throw new ArgumentError(`Expected the field \`${name.slice(0, 80)}\` to have at most ${MAX_FIELD_BYTES} bytes, got more`, {
        param: name.slice(0, 80),
      });
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

/** Returns the name of a file. @throws ArgumentError `E_ARGUMENT` without one, and for an empty or a long one */
function requireFilename({ filename }: FormPart): string {
  if (filename !== null && filename !== "" && filename.length <= MAX_FILENAME_CHARACTERS) return filename;
  const described = filename === "" ? "an empty one" : `${filename?.length} characters`;
  const got = filename === null ? "a field without one" : described;
  throw new ArgumentError(`Expected \`file\` to be a file with a name of at most ${MAX_FILENAME_CHARACTERS} characters, got ${got}`, {
    param: "file",
  });
}

/**
 * Opens the contents of a file.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an unknown file.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for contents that differ from the upload.
 */
export async function openFile(
  { store, files }: { readonly store: Store; readonly files: Pick<StoredFiles, "openBlob"> },
  id: string,
): Promise<{ readonly row: FileRow; readonly content: Readable }> {
  const row = await getFile(store, id, "file_id");
  const artifact = await getArtifact(store, row.artifact_id);
  return { row, content: await files.openBlob(artifact, first(artifact.files)) };
}

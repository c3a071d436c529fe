/** Note and tags that a user gives a run, in `notes.jsonl`. */

import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { DataError } from "../base/errors.ts";
import { messageOf } from "../base/util/values.ts";
import type { NotesChange } from "./data.ts";
import { NOTES_FILE } from "./files.ts";
import { type FoundRun, isInside } from "./find-runs.ts";

/** Schema of a line of `notes.jsonl`: the values that the line changes. */
export const notesRow = z.looseObject({ time: z.string(), note: z.string().optional(), tags: z.array(z.string()).optional() });

/** Line of `notes.jsonl`. */
export type NotesRow = z.infer<typeof notesRow>;

/** Returns the note and the tags after all lines: the last line with a note counts, and the last line with tags. */
export function notesOf(rows: readonly NotesRow[]): { readonly note: string; readonly tags: readonly string[] } {
  return {
    note: rows.findLast(({ note }) => note !== undefined)?.note ?? "",
    tags: rows.findLast(({ tags }) => tags !== undefined)?.tags ?? [],
  };
}

/**
 * Appends a change to `notes.jsonl` of a run and syncs the file. A last line without a line end, as a crash leaves one, is removed first.
 *
 * @throws DataError `E_DATA` if the file is a symbolic link, or cannot be written.
 */
export async function appendNotes({ root, path: directory }: FoundRun, change: NotesChange): Promise<void> {
  const path = join(directory, NOTES_FILE);
  // Rejects an existing symbolic link with the same message as for every other file of a run.
  await isInside(root, path);
  const { note, tags } = change;
  const row = { time: new Date().toISOString(), note, tags: tags === undefined ? undefined : [...new Set(tags)] };
  let file: FileHandle | undefined;
  try {
    file = await open(path, constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | (constants.O_NOFOLLOW ?? 0));
    const written = await file.readFile();
    const completeBytes = written.lastIndexOf("\n") + 1;
    if (completeBytes < written.length) await file.truncate(completeBytes);
    await file.appendFile(`${JSON.stringify(row)}\n`);
    await file.sync();
  } catch (error) {
    throw new DataError(`${path}: cannot be written: ${messageOf(error)}. Make the run directory writable for the service`, {
      cause: error,
    });
  } finally {
    await file?.close();
  }
}

/** Reading of JSON documents of other programs: files of one document, or of one document per line. */
import { readFile } from "node:fs/promises";
import { gunzipSync } from "node:zlib";
import type { z } from "zod";
import { DataError } from "../../../base/errors.ts";
import { Trajectory } from "../../../base/trajectory/index.ts";
import { validateTrajectory } from "../../../base/trajectory/validate.ts";
import { parseWith } from "../../../base/util/validation.ts";
import { readJsonLines, type ReadOptions } from "../jsonl.ts";
import { expandPaths, type Patterns } from "../paths.ts";
import { isRecord } from "../../../base/util/values.ts";

/** Object parsed from JSON. */
export type Json = Record<string, unknown>;

/** Parsed JSON document of a file and its position. */
export interface Document {
  readonly value: unknown;
  /** File, and line in a file of lines; the beginning of every error message. */
  readonly where: string;
  /** Path of the file. */
  readonly path: string;
}

/** Whether a value is an object other than an array. */
export function isJsonObject(value: unknown): value is Json {
  return isRecord(value);
}

/**
 * Reads documents: one per file if its name ends in `.json` or `.json.gz`, else one per line.
 *
 * @throws DataError `E_DATA` with file and line for text that is not JSON, or for a pattern that matches nothing.
 */
export async function* readDocuments(patterns: Patterns, options: ReadOptions): AsyncGenerator<Document, void, undefined> {
  for (const path of await expandPaths(patterns)) {
    if (/\.json(?:\.gz)?$/u.test(path)) yield { value: await readDocument(path, options), where: path, path };
    else for await (const { line, value } of readJsonLines(path, options)) yield { value, where: `${path}:${line}`, path };
  }
}

/** Reads a file that is one document. */
async function readDocument(path: string, { signal }: ReadOptions): Promise<unknown> {
  signal?.throwIfAborted();
  try {
    const bytes = await readFile(path, signal === undefined ? {} : { signal });
    const text = (path.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString("utf8");
    return JSON.parse(text.replace(/^\u{feff}/u, "")) as unknown;
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    const reason = error instanceof SyntaxError ? `expected a JSON document: ${error.message}` : `cannot be read: ${String(error)}`;
    throw new DataError(`${path}: ${reason}`, { cause: error });
  }
}

/**
 * Parses a document with a schema.
 *
 * @param what - Name of the format, for messages.
 * @throws DataError `E_DATA` that starts with `where` and names up to five fields, each with the expected and the received value.
 */
export function parseDocument<S extends z.ZodType>(schema: S, value: unknown, what: string, where: string): z.output<S> {
  const result = parseWith(schema, value, [], "the document");
  if ("data" in result) return result.data;
  throw new DataError(`${where}: expected ${what}; ${result.mismatch.text}`);
}

/**
 * Validates the wire form of a converted trajectory. Takes ownership of `wire`: the caller must not change it afterwards.
 *
 * @throws DataError `E_DATA` that starts with `where`, with the path inside the trajectory.
 */
export function convertedTrajectory(wire: unknown, where: string): Trajectory {
  const result = validateTrajectory(wire);
  if (result.success) return Trajectory.fromOwned(result.data);
  const [issue] = result.error.issues;
  throw new DataError(`${where}: expected values that a trajectory can hold; at \`${issue?.path.join(".")}\`: ${issue?.message}`);
}

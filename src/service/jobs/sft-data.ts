import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import { setImmediate } from "node:timers/promises";
import { z } from "zod";
import type { BaseModelInfo, Engine } from "../../engine/port.ts";
import { ArgumentError, ConflictError, DataError, WhetstoneError } from "../../errors.ts";
import { planSft, readSftExample, sftSequences, type SftPlan, type TokenSequence } from "../../learner/index.ts";
import type { SftConfig, SftExperimentalConfig } from "../../schema/index.ts";
import type { ChatTokenizer } from "../../tokenizer/index.ts";
import { artifactUrl } from "../names.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { ArtifactFileRow, ModelRow } from "../store/tables.ts";
import type { TokenizerSource } from "./tokenizers.ts";
import { messageOf } from "../error-text.ts";

const PARAM = "training_data_url";
/** Both layouts clients write; a version has exactly one of them. */
const DATA_FILES = ["trajectories.jsonl", "train.jsonl"];
const METADATA_FILE = "metadata.json";
/** Reading shares the thread that serves: it lets others in this often. */
const YIELD_AFTER_MS = 8;

const metadataSchema = z.looseObject({ num_trajectories: z.int().min(0).nullish() });

/** The request of an SFT job, as the job's row keeps it. */
export interface SftJobConfig {
  readonly artifact_id: string;
  readonly config: SftConfig | null;
  readonly experimental_config: SftExperimentalConfig | null;
}

/** The data of an SFT job as tokens. */
export interface SftData {
  /** Per example that fits the context: its sequences. */
  readonly examples: readonly (readonly TokenSequence[])[];
  /** Sequences longer than the context, left out. */
  readonly droppedSequences: number;
  /** Trained tokens in them. */
  readonly droppedTokens: number;
}

/** What reading data needs. */
export interface SftReader {
  readonly base: BaseModelInfo;
  readonly tokenizer: ChatTokenizer;
  readonly blobPath: (sha256: string) => string;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Reads every line of an artifact as it will be trained.
 *
 * @throws DataError `E_DATA` naming file and line for what does not parse or cannot be trained.
 * @throws ConflictError `E_CONFLICT` for a version that is still open.
 */
export async function readSftData(artifact: StoredArtifact, { base, tokenizer, blobPath, signal }: SftReader): Promise<SftData> {
  const file = dataFile(artifact);
  const examples: (readonly TokenSequence[])[] = [];
  let droppedSequences = 0;
  let droppedTokens = 0;
  let lines = 0;
  let yieldedMs = performance.now();
  for await (const { text, number } of numberedLines(blobPath(file.sha256))) {
    if (text.trim() === "") continue;
    lines++;
    const read = readLine(text, `${file.path} line ${number}`, { base, tokenizer });
    droppedSequences += read.droppedSequences;
    droppedTokens += read.droppedTokens;
    if (read.sequences.length > 0) examples.push(read.sequences);
    if (performance.now() - yieldedMs < YIELD_AFTER_MS) continue;
    await setImmediate();
    signal?.throwIfAborted();
    yieldedMs = performance.now();
  }
  await checkMetadata(artifact, { lines, file, blobPath });
  if (examples.length === 0) {
    const why =
      lines === 0
        ? "the file is empty"
        : `all of its ${lines} trajectories are longer than the model's context of ${base.contextLength} tokens`;
    throw new DataError(`${file.path}: nothing to train: ${why}`, { param: PARAM });
  }
  return { examples, droppedSequences, droppedTokens };
}

/** Checks all that can be checked before a job is accepted, and plans it. */
export async function checkSftData(
  {
    engine,
    tokenizers,
    blobs,
  }: { readonly engine: Engine; readonly tokenizers: TokenizerSource; readonly blobs: { readonly path: (sha256: string) => string } },
  { model, artifact, config }: { readonly model: ModelRow; readonly artifact: StoredArtifact; readonly config: SftJobConfig },
): Promise<SftPlan> {
  const base = await engine.describeBase(model.base_model);
  const data = await readSftData(artifact, { base, tokenizer: await tokenizers(base.directory), blobPath: blobs.path });
  return planSft(data.examples.length, config.config, config.experimental_config);
}

function dataFile(artifact: StoredArtifact): ArtifactFileRow {
  const url = artifactUrl(artifact);
  if (artifact.state === "open") {
    throw new ConflictError(`Artifact '${url}' is not committed yet. Commit it with POST /v1/preview/artifacts/${artifact.id}/commit`, {
      param: PARAM,
    });
  }
  const found = artifact.files.filter((file) => DATA_FILES.includes(file.path));
  const [file] = found;
  if (file === undefined || found.length > 1) {
    const names = artifact.files
      .map((other) => other.path)
      .slice(0, 10)
      .join(", ");
    throw new ArgumentError(
      `Expected artifact '${url}' to hold either trajectories.jsonl (with metadata.json) or train.jsonl, found: ${names}`,
      { param: PARAM },
    );
  }
  return file;
}

/** Lines with their numbers from 1, without line ends and byte order mark. Closes the file when left early. */
async function* numberedLines(path: string): AsyncGenerator<{ readonly text: string; readonly number: number }> {
  const stream = createReadStream(path, { encoding: "utf8", highWaterMark: 1 << 18 });
  let number = 0;
  try {
    for await (const line of createInterface({ input: stream, crlfDelay: Infinity })) {
      number++;
      yield { text: number === 1 ? line.replace(/^\uFEFF/, "") : line, number };
    }
  } finally {
    stream.destroy();
  }
}

function readLine(
  text: string,
  where: string,
  { base, tokenizer }: Pick<SftReader, "base" | "tokenizer">,
): ReturnType<typeof sftSequences> {
  try {
    return sftSequences(readSftExample(JSON.parse(text), where), tokenizer, base, where);
  } catch (cause) {
    // Only what the data can be blamed for gets a line number; a defect of ours must not look like bad data.
    if (cause instanceof SyntaxError) throw new DataError(`${where}: not JSON: ${cause.message}`, { cause, param: PARAM });
    if (!WhetstoneError.isInstance(cause) || cause.code === "E_INTERNAL") throw cause;
    throw new DataError(cause.message.startsWith(where) ? cause.message : `${where}: ${cause.message}`, { cause, param: PARAM });
  }
}

/** Metadata that counts the trajectories shows an upload that was cut short. */
async function checkMetadata(
  artifact: StoredArtifact,
  { lines, file, blobPath }: { readonly lines: number; readonly file: ArtifactFileRow; readonly blobPath: (sha256: string) => string },
): Promise<void> {
  const metadata = artifact.files.find((other) => other.path === METADATA_FILE);
  if (metadata === undefined) return;
  let parsed: unknown;
  try {
    parsed = JSON.parse(await readFile(blobPath(metadata.sha256), "utf8"));
  } catch (cause) {
    throw new DataError(`${METADATA_FILE}: not JSON: ${messageOf(cause)}`, { cause, param: PARAM });
  }
  const result = metadataSchema.safeParse(parsed);
  if (!result.success)
    throw new DataError(`${METADATA_FILE}: expected an object whose \`num_trajectories\`, if any, is a number`, { param: PARAM });
  const expected = result.data.num_trajectories ?? lines;
  if (expected !== lines) {
    throw new DataError(
      `${METADATA_FILE}: \`num_trajectories\` is ${expected}, but ${file.path} has ${lines}. Upload both files again as a new version`,
      { param: PARAM },
    );
  }
}

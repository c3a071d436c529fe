/** Reading of training examples: from the files of an artifact version to token sequences. */
import type { BaseModelInfo } from "../../engine/port.ts";
import { DataError } from "../../base/errors.ts";
import { readPreferencePair } from "../../base/trajectory/preference-pair.ts";
import { parseNestedJson } from "../../base/util/json-size.ts";
import { preferenceSequences, readSftExample, sftSequences, type SftSequences, type TokenSequence } from "../../learner/index.ts";
import type { ChatTokenizer } from "../../text/tokenizer/index.ts";
import { PREFERENCE_LIMITS, TRAJECTORY_LIMITS } from "../http/request-limits.ts";
import type { StoredArtifact } from "../store/artifacts.ts";
import type { StoredFiles } from "../stored-files/stored-files.ts";
import { dataBytes, readDataLines, useLines, type LineFormat, type LineSource } from "./data-lines.ts";

/** Request field that names the training artifact. */
const PARAM = "training_data_url";

/** Kind of the lines: supervised examples with their trained turns, or preference pairs. */
export type ExampleKind = { readonly name: "sft"; readonly assistantTurns: "all" | "last" } | { readonly name: "preference" };

/** Formats of the lines by kind. */
const FORMATS: Readonly<Record<ExampleKind["name"], LineFormat>> = {
  sft: { file: "trajectories.jsonl", countKey: "num_trajectories", limits: TRAJECTORY_LIMITS },
  preference: { file: "preferences.jsonl", countKey: "num_pairs", limits: PREFERENCE_LIMITS },
};
/** Nouns of the examples, for messages. */
const NOUNS: Readonly<Record<ExampleKind["name"], string>> = { sft: "trajectories", preference: "pairs" };

/** Tokenized data of a job. */
export interface ExampleData {
  /** Sequences per example, without sequences longer than the context. A preference pair has two: the chosen, then the rejected one. */
  readonly examples: readonly (readonly TokenSequence[])[];
  /** Number of sequences dropped because they are longer than the context, or because the other one of their pair is. */
  readonly droppedSequences: number;
  /** Number of trained tokens in the dropped sequences. */
  readonly droppedTokens: number;
  /** Number of examples without a remaining sequence. */
  readonly droppedExamples: number;
  /** Bytes of the texts that the vocabulary has no token for. */
  readonly missingBytes: number;
  /** Number of examples with such bytes. */
  readonly examplesWithMissingBytes: number;
}

/** Training data to read, as structured-cloneable data. */
export interface ExampleSource extends LineSource {
  readonly base: BaseModelInfo;
  readonly kind: ExampleKind;
}

/** Options of {@link readExampleData}: the tokenizer of the source's base model, and an abort signal. */
export interface ExampleReading {
  readonly tokenizer: ChatTokenizer;
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link useExamples}. */
export interface ExampleSourceOptions extends Pick<ExampleSource, "base" | "kind"> {
  readonly files: Pick<StoredFiles, "useBlobs">;
  /** Request field that names the artifact. @default "training_data_url" */
  readonly param?: string | undefined;
}

/** Calls `use` with the verified files of an artifact version; see {@link useLines}. */
export async function useExamples<T>(
  artifact: StoredArtifact,
  { base, kind, files, param = PARAM }: ExampleSourceOptions,
  use: (source: ExampleSource) => Promise<T>,
): Promise<T> {
  return useLines(artifact, FORMATS[kind.name], { files, param }, (source) => use({ ...source, base, kind }));
}

/** Returns the size of a source's data file in bytes; 0 for a version without one. */
export function exampleBytes(source: ExampleSource): number {
  return dataBytes(source, FORMATS[source.kind.name]);
}

/**
 * Reads and tokenizes every line of an artifact for training.
 *
 * @throws DataError `E_DATA` naming file and line of data that cannot be parsed or trained.
 * @throws ConflictError `E_CONFLICT` for a version that is still open.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that differs from the upload.
 */
export async function readExampleData(source: ExampleSource, { tokenizer, signal }: ExampleReading): Promise<ExampleData> {
  const { base, kind, param } = source;
  const examples: (readonly TokenSequence[])[] = [];
  let droppedSequences = 0;
  let droppedTokens = 0;
  let missingBytes = 0;
  let examplesWithMissingBytes = 0;
  let lineCount = 0;
  const read = (value: unknown, where: string) => tokenizeLine(value, where, source, tokenizer);
  const { file, lines } = readDataLines(source, FORMATS[kind.name], read, signal);
  for await (const tokenized of lines) {
    lineCount++;
    droppedSequences += tokenized.droppedSequences;
    droppedTokens += tokenized.droppedTokens;
    missingBytes += tokenized.missingBytes;
    if (tokenized.missingBytes > 0) examplesWithMissingBytes++;
    if (tokenized.sequences.length > 0) examples.push(tokenized.sequences);
  }
  if (examples.length === 0) {
    const reason =
      lineCount === 0
        ? "the file is empty"
        : `all of its ${lineCount} ${NOUNS[kind.name]} are longer than the model's context of ${base.contextLength} tokens`;
    throw new DataError(`${file}: nothing to train: ${reason}`, { param });
  }
  const droppedExamples = lineCount - examples.length;
  return { examples, droppedSequences, droppedTokens, droppedExamples, missingBytes, examplesWithMissingBytes };
}

/** Tokenizes the value of one line. */
function tokenizeLine(value: unknown, where: string, { base, kind }: ExampleSource, tokenizer: ChatTokenizer): SftSequences {
  if (kind.name === "sft")
    return sftSequences(readSftExample(value, where), tokenizer, base, { assistantTurns: kind.assistantTurns, where });
  const pairLine = readPreferencePair(value, where, { parseText: parseNestedJson });
  const { pair, droppedTokens, missingBytes } = preferenceSequences(pairLine, tokenizer, base, where);
  const sequences = pair === null ? [] : [pair.chosen, pair.rejected];
  return { sequences, droppedSequences: pair === null ? 2 : 0, droppedTokens, missingBytes };
}

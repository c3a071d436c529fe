/** Export of a checkpoint in the formats of other programs. */
import { copyFile, mkdir, readdir, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import type { CallOptions, Model } from "../library/client/index.ts";
import { ArgumentError, UnsupportedError } from "../base/errors.ts";
import type { ExportDtype } from "./element-encoders.ts";
import { exportGgufAdapter } from "./gguf/adapter.ts";
import { exportGguf } from "./gguf/model.ts";
import { writeHuggingFace } from "./hugging-face.ts";
import { openMergedWeights } from "./merged-weights.ts";
import { writeTarget } from "./target.ts";

/**
 * Format of an exported checkpoint: a complete model in Hugging Face layout, only the adapter in PEFT layout, or one GGUF file for
 * llama.cpp with the complete model or only the adapter.
 */
export type ExportFormat = "huggingface" | "peft" | "gguf" | "gguf-adapter";

/** Valid values of the option `format`. */
const FORMATS: readonly string[] = ["huggingface", "peft", "gguf", "gguf-adapter"] satisfies ExportFormat[];
/** Valid values of the option `dtype`. */
const DTYPES: readonly string[] = ["float32", "float16", "bfloat16", "q8_0"];

/** Options of {@link exportCheckpoint}. */
export interface ExportOptions extends CallOptions {
  /** Step of the checkpoint. @default the newest */
  readonly step?: number | undefined;
  /** Format of the output. @default "huggingface" */
  readonly format?: ExportFormat | undefined;
  /**
   * Type of the weights, rounded to nearest, ties to even; `"q8_0"` only for GGUF. In GGUF, vectors (norms and biases) are always float32,
   * and `"q8_0"` writes rows that are no multiple of 32 elements as float16. Not for PEFT, which keeps the adapter's type.
   * @default "float32"
   */
  readonly dtype?: ExportDtype | undefined;
  /** Replace an existing file, or a directory with files. @default false */
  readonly force?: boolean | undefined;
  /**
   * Directory of the base model in Hugging Face layout, to merge an adapter into. `"gguf-adapter"` reads only its `config.json`.
   * @default the base model is downloaded from the service
   */
  readonly base?: string | undefined;
  /**
   * llama.cpp's identifier of a pre-tokenizer (`tokenizer.ggml.pre`), for GGUF. @default chosen by the pattern in `tokenizer.json`
   */
  readonly preTokenizer?: string | undefined;
  /** Whether a model in GGUF contains tokenizer and chat template; without them, programs must pass token ids. @default true */
  readonly tokenizer?: boolean | undefined;
}

/** Files that {@link exportCheckpoint} has written, and the origin of their weights. */
export interface ExportResult {
  /** Path of the directory or GGUF file, as given. */
  readonly path: string;
  /** Format of the output. */
  readonly format: ExportFormat;
  /** Type of the weights; null for PEFT, which keeps the adapter's type. */
  readonly dtype: ExportDtype | null;
  /** Full name of the model, `entity/project/name`. */
  readonly model: string;
  /** Step of the checkpoint. */
  readonly step: number;
  /** Base model of the checkpoint. */
  readonly baseModel: string;
  /** Names of the files in the directory, sorted; the name of the GGUF file. */
  readonly files: readonly string[];
  /** Size of all files in bytes. */
  readonly sizeBytes: number;
  /** Sentences about known differences, such as texts that llama.cpp splits into other tokens. */
  readonly warnings: readonly string[];
}

/** Formats of models with an adapter, which write the adapter alone. */
const ADAPTER_FORMATS: ReadonlySet<ExportFormat> = new Set(["peft", "gguf-adapter"]);
/** Formats of llama.cpp. */
const GGUF_FORMATS: ReadonlySet<ExportFormat> = new Set(["gguf", "gguf-adapter"]);
/** Folder of the base model in a downloaded archive. */
const BASE_FOLDER = "base";
/** Folder of the archive in the scratch directory. */
const DOWNLOAD = "download";
/** File of an archive that identifies the checkpoint. */
const CHECKPOINT_FILE = "checkpoint.json";

/**
 * Downloads a checkpoint and writes it in the format of another program.
 *
 * An adapter is merged into its base model, `W + (alpha / rank) · B·A`: each element is computed in float64, rounded once to float32, then
 * to `dtype`. The output appears only when it is complete. Needs disk space for the download and the output, and memory for one tensor.
 *
 * @param model - Model of the checkpoint.
 * @param path - Directory to write, new or empty; for GGUF, the file to write. Parents are created.
 * @param options - Step, format, type of the weights, base model, signal and time limit.
 * @returns the files that were written.
 * @throws ArgumentError `E_ARGUMENT` for an existing target without `force`, and for options that do not fit the format or the model.
 * @throws UnsupportedError `E_UNSUPPORTED` if the format does not have the model or its tokenizer, if weights are out of range of `dtype`,
 *   or if the service sends no base model and `base` is missing.
 * @throws DataError `E_DATA` for invalid files. HttpError `E_HTTP` for an error status; ConnectionError `E_CONNECTION` if the download is
 *   cut.
 * @example
 * ```ts
 * import { connect } from "whetstone";
 * import { exportCheckpoint } from "whetstone/export";
 *
 * await using service = await connect();
 * const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny", returnExisting: true });
 * const { files } = await exportCheckpoint(model, "exported/reverse", { dtype: "bfloat16" });
 * console.log(files);
 * ```
 */
export async function exportCheckpoint(model: Model, path: string, options: ExportOptions = {}): Promise<ExportResult> {
  const { format = "huggingface", force = false, signal, timeoutMs } = options;
  const dtype = options.dtype ?? "float32";
  checkOptions(model, format, options);
  const step = options.step ?? (await model.step({ signal, timeoutMs }));
  const name = `${model.entity}/${model.project}/${model.name}`;
  const warnings = await writeTarget(path, { force }, (scratch, output) => writeCheckpoint(model, step, { scratch, output }, options));
  return {
    path,
    format,
    dtype: format === "peft" ? null : dtype,
    model: name,
    step,
    baseModel: model.baseModel,
    ...(await filesOf(path)),
    warnings,
  };
}

/**
 * Downloads a checkpoint to `scratch` and writes it to `output`.
 *
 * @returns Sentences about known differences.
 */
async function writeCheckpoint(
  model: Model,
  step: number,
  { scratch, output }: { readonly scratch: string; readonly output: string },
  { format = "huggingface", dtype = "float32", base, tokenizer, preTokenizer, signal, timeoutMs }: ExportOptions,
): Promise<readonly string[]> {
  const needsBase = model.lora !== null && format !== "peft";
  // A checkpoint of an adapter is stored in PEFT layout, so that its download is the export.
  const downloaded = format === "peft" ? output : join(scratch, DOWNLOAD);
  const includeBase = needsBase && base === undefined;
  await model.service.checkpoints.download(model.id, step, downloaded, { includeBase, signal, timeoutMs });
  if (format === "peft") return [];
  const directory = needsBase ? (base ?? (await includedBase(downloaded, model.baseModel))) : downloaded;
  const source = { base: directory, name: `${model.entity}/${model.project}/${model.name}:step${step}`, dtype, signal };
  if (format === "gguf-adapter") {
    await exportGgufAdapter(output, { ...source, adapter: downloaded });
    return [];
  }
  const weights = await openMergedWeights(directory, needsBase ? downloaded : null);
  try {
    if (format === "gguf") return await exportGguf(output, { ...source, weights, preTokenizer: tokenizer === false ? null : preTokenizer });
    await mkdir(output);
    await copyFile(join(downloaded, CHECKPOINT_FILE), join(output, CHECKPOINT_FILE));
    await writeHuggingFace(output, { base: directory, weights, dtype: dtype as Exclude<ExportDtype, "q8_0">, signal });
    return [];
  } finally {
    await weights.close();
  }
}

/** Checks that the options fit the format and the model. @throws ArgumentError `E_ARGUMENT` naming the option. */
function checkOptions(model: Model, format: ExportFormat, { dtype, base, preTokenizer, tokenizer }: ExportOptions): void {
  const refuse = (param: string, message: string): never => {
    throw new ArgumentError(message, { param });
  };
  const name = `${model.project}/${model.name}`;
  if (!FORMATS.includes(format)) refuse("format", `Expected \`format\` to be one of ${FORMATS.join(", ")}, got ${JSON.stringify(format)}`);
  if (dtype !== undefined && !DTYPES.includes(dtype))
    refuse("dtype", `Expected \`dtype\` to be one of ${DTYPES.join(", ")}, got ${JSON.stringify(dtype)}`);
  if (ADAPTER_FORMATS.has(format) && model.lora === null)
    refuse("format", `Expected a model with an adapter for format "${format}"; ${name} is fully trained: export "huggingface" or "gguf"`);
  if (format === "peft" && dtype !== undefined)
    refuse("dtype", 'Expected no `dtype` with format "peft", which keeps the type of the adapter');
  if (!GGUF_FORMATS.has(format) && dtype === "q8_0")
    refuse("dtype", `Expected \`dtype\` "float32", "float16" or "bfloat16" for format "${format}", got "q8_0"`);
  if (format !== "gguf") {
    if (preTokenizer !== undefined) refuse("preTokenizer", `Expected no \`preTokenizer\` for format "${format}": only "gguf" has it`);
    if (tokenizer === false) refuse("tokenizer", `Expected no \`tokenizer: false\` for format "${format}": only "gguf" has the choice`);
  } else if (tokenizer === false && preTokenizer !== undefined) {
    refuse("preTokenizer", "Expected no `preTokenizer` without a tokenizer");
  }
  if (base !== undefined && (model.lora === null || format === "peft")) {
    const subject = format === "peft" ? 'format "peft"' : `${name}, which is fully trained`;
    refuse("base", `Expected no \`base\`: nothing is merged for ${subject}`);
  }
}

/** Returns the directory of the base model in a download. @throws UnsupportedError `E_UNSUPPORTED` if the service has sent none. */
async function includedBase(directory: string, baseModel: string): Promise<string> {
  const path = join(directory, BASE_FOLDER);
  const exists = await stat(path).catch(() => null);
  if (exists !== null) return path;
  throw new UnsupportedError(
    `The service does not send base models. Pass the directory of "${baseModel}" as \`base\` (--base), or export only the adapter as "peft"`,
    { param: "base" },
  );
}

/** Returns names and total size of the written files. */
async function filesOf(path: string): Promise<Pick<ExportResult, "files" | "sizeBytes">> {
  const isDirectory = (await stat(path)).isDirectory();
  const files = isDirectory ? (await readdir(path)).toSorted() : [basename(path)];
  const sizes = await Promise.all(files.map((file) => stat(isDirectory ? join(path, file) : path)));
  return { files, sizeBytes: sizes.reduce((sum, { size }) => sum + size, 0) };
}

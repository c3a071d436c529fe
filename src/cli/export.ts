/** Command `whetstone export`: a checkpoint as files for other programs. */
import { Command, InvalidArgumentError, Option } from "commander";
import type { ExportDtype, ExportFormat, ExportResult } from "../export/index.ts";
import { formatBytes } from "../base/util/units.ts";
import { addDataDir, withService } from "./connected.ts";
import { checkpointByName } from "./names.ts";
import { type OutputOptions, printResult } from "./output.ts";

/** Values of `--format`. */
const FORMATS = ["huggingface", "peft", "gguf", "gguf-adapter"] as const satisfies readonly ExportFormat[];
/** Values of `--dtype`. */
const DTYPES = ["float32", "float16", "bfloat16", "q8_0"] as const satisfies readonly ExportDtype[];
/** Suffix of the default file name by format; empty for a format that is a directory. */
const SUFFIXES: Readonly<Record<ExportFormat, string>> = { huggingface: "", peft: "", gguf: ".gguf", "gguf-adapter": "-adapter.gguf" };

/** Options of the command. */
interface ExportCommandOptions extends OutputOptions {
  readonly format: ExportFormat;
  readonly dtype?: ExportDtype;
  readonly base?: string;
  readonly preTokenizer?: string;
  readonly tokenizer: boolean;
  readonly force?: boolean;
}

/** Creates the command `whetstone export <model>:<step>`, which writes a checkpoint for transformers, PEFT, vLLM or llama.cpp. */
export function exportCommand(): Command {
  return addDataDir(new Command("export"))
    .description(
      "write a checkpoint for other programs: a Hugging Face directory, a PEFT adapter, or a model or an adapter in GGUF for llama.cpp",
    )
    .argument("<model[:step]>", "trained model, without a step its newest checkpoint")
    .argument("[path]", "directory or GGUF file to write (default: <name>-step<N>, for GGUF .gguf or -adapter.gguf)", nonEmptyPath)
    .addOption(new Option("--format <format>", "format to write").choices(FORMATS).default("huggingface"))
    .addOption(new Option("--dtype <dtype>", "type of the weights (default: float32); q8_0 only for GGUF").choices(DTYPES))
    .option("--base <directory>", "base model of an adapter (default: downloaded from the service)")
    .option("--pre-tokenizer <id>", "pre-tokenizer of llama.cpp (default: chosen by the tokenizer's pattern)")
    .option("--no-tokenizer", "write a GGUF file without tokenizer and chat template, for programs that pass token ids")
    .option("--force", "replace an existing file or directory")
    .action(run);
}

/** Parses a path that is not empty. */
function nonEmptyPath(text: string): string {
  if (text === "") throw new InvalidArgumentError("Expected a path.");
  return text;
}

/** Runs the command. */
async function run(text: string, path: string | undefined, options: ExportCommandOptions): Promise<void> {
  const { format, dtype, base, preTokenizer, tokenizer, force } = options;
  // Imported lazily: `--help` needs neither the tokenizers nor the reader of weights.
  const { exportCheckpoint } = await import("../export/index.ts");
  await withService(options, async (connected) => {
    const { signal } = connected;
    const { model, policy } = await checkpointByName(connected, text);
    const { step } = policy;
    const target = path ?? `${model.name}-step${step}${SUFFIXES[format]}`;
    const result = await exportCheckpoint(model, target, { step, format, dtype, base, preTokenizer, tokenizer, force, signal });
    printResult(options, result, lines);
  });
}

/** Returns the line of the written export, and its warnings. */
function* lines({ path, format, dtype, model, step, files, sizeBytes, warnings }: ExportResult): Generator<string> {
  const type = dtype === null ? "" : `, ${dtype}`;
  const isDirectory = SUFFIXES[format] === "";
  const fileNames = isDirectory ? `: ${files.join(", ")}` : "";
  yield `${model}:step${step} → ${path} (${format}${type}, ${formatBytes(sizeBytes)}${fileNames})`;
  for (const warning of warnings) yield `warning: ${warning}`;
}

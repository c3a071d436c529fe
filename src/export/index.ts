/** Export of checkpoints to other programs: Hugging Face transformers, PEFT, llama.cpp. */
export { exportCheckpoint, type ExportFormat, type ExportOptions, type ExportResult } from "./export-checkpoint.ts";
export type { ExportDtype } from "./element-encoders.ts";

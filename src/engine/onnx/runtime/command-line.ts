/** Check of the process's command line, which ONNX Runtime cannot load with in every length. */
import { readFileSync } from "node:fs";
import { ConfigError } from "../../../errors.ts";

/** Max bytes of the command line. The runtime matches it in a recursion that overflows a thread's stack at some 14,500 bytes. */
const MAX_BYTES = 12_000;

/** @throws ConfigError `E_CONFIG` if the runtime would end the process because of its long command line. */
export function requireShortCommandLine(): void {
  if (process.platform !== "linux") return;
  const { length } = readFileSync("/proc/self/cmdline");
  if (length <= MAX_BYTES) return;
  throw new ConfigError(
    `Expected a command line of at most ${MAX_BYTES} bytes, got ${length}: ONNX Runtime ends processes with longer ones. Pass the data in a file, on standard input or in an environment variable`,
    { param: "argv" },
  );
}

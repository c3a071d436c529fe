/** Check of the length of the process's command line. */
import { readFileSync } from "node:fs";
import { ConfigError } from "../../../base/errors.ts";

/**
 * Max bytes of the command line. On Linux, ONNX Runtime 1.30 ends the process with a segmentation fault if a session is created with a
 * longer one: in a worker thread from some 14,500 bytes, in the main thread from some 30,000.
 */
const MAX_BYTES = 12_000;

/** @throws ConfigError `E_CONFIG` if the runtime would end the process because of its long command line. */
export function requireShortCommandLine(): void {
  if (process.platform !== "linux") return;
  const length = commandLineBytes();
  if (length <= MAX_BYTES) return;
  throw new ConfigError(
    `Expected a command line of at most ${MAX_BYTES} bytes, got ${length}: ONNX Runtime crashes with a longer one. Pass the data in a file, on standard input or in an environment variable`,
    { param: "argv" },
  );
}

/** Returns the bytes of the command line; 0 where the system does not show it. */
function commandLineBytes(): number {
  try {
    return readFileSync("/proc/self/cmdline").length;
  } catch {
    return 0;
  }
}

/** Memory of NVIDIA GPUs, as `nvidia-smi` reports it. */
import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

const run = promisify(execFile);
/** Pause between two readings, in milliseconds. */
const PAUSE_MS = 100;

/** Result of a call with the memory of the GPU that it took. */
export interface WatchedCall<T> {
  readonly result: T;
  /** Largest growth of the used memory of a GPU during the call, in 10⁶ bytes; null without `nvidia-smi`. Includes other processes. */
  readonly gpuMb: number | null;
}

/** Calls `body`, and meanwhile reads the used memory of every GPU. */
export async function watchGpuMemory<T>(body: () => Promise<T>): Promise<WatchedCall<T>> {
  const before = await usedMib();
  if (before === null) return { result: await body(), gpuMb: null };
  let growthMib = 0;
  let isRunning = true;
  const watch = async () => {
    while (isRunning) {
      const used = await usedMib();
      growthMib = Math.max(growthMib, ...(used ?? []).map((mib, gpu) => mib - before[gpu]!));
      await sleep(PAUSE_MS);
    }
  };
  const watching = watch();
  try {
    const result = await body();
    return { result, gpuMb: (growthMib * 2 ** 20) / 1e6 };
  } finally {
    isRunning = false;
    await watching;
  }
}

/** Returns the used memory of each GPU in MiB; null without `nvidia-smi`, or if a GPU does not report it. */
async function usedMib(): Promise<number[] | null> {
  const args = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"];
  const { stdout } = await run("nvidia-smi", args).catch(() => ({ stdout: "" }));
  const used = stdout.trim().split("\n").map(Number);
  return stdout.trim() === "" || used.some(Number.isNaN) ? null : used;
}

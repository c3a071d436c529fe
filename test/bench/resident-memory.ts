/** Resident memory of a process by phase, from Linux's `/proc`. */
import { readFileSync, writeFileSync } from "node:fs";

/** Resident memory and processor time of one phase. */
export interface PhaseUse {
  readonly name: string;
  readonly seconds: number;
  /** Processor time of all threads, in seconds. */
  readonly cpuSeconds: number;
  /** Resident memory at the end of the phase, in 10⁶ bytes. */
  readonly residentMb: number;
  /** Peak of the resident memory in the phase, in 10⁶ bytes. */
  readonly peakMb: number;
}

/** Whether the system reports the peak of a phase. */
export const hasPeaks = process.platform === "linux";

/** Measures phases of this process, one after the other. */
export class PhaseMeter {
  readonly phases: PhaseUse[] = [];

  /** Runs one phase and records its use of memory and time. */
  async measure<T>(name: string, body: () => Promise<T>): Promise<T> {
    // Sets the kernel's high-water mark to the present value.
    if (hasPeaks) writeFileSync("/proc/self/clear_refs", "5");
    const [startMs, start] = [performance.now(), process.cpuUsage()];
    const result = await body();
    const { user, system } = process.cpuUsage(start);
    const { residentMb, peakMb } = residentMemory();
    this.phases.push({ name, seconds: (performance.now() - startMs) / 1000, cpuSeconds: (user + system) / 1e6, residentMb, peakMb });
    return result;
  }
}

/** Returns the resident memory of this process and its high-water mark, in 10⁶ bytes. Without `/proc`, the mark covers the whole life of the process. */
export function residentMemory(): { readonly residentMb: number; readonly peakMb: number } {
  if (!hasPeaks) return { residentMb: process.memoryUsage.rss() / 1e6, peakMb: (process.resourceUsage().maxRSS * 1024) / 1e6 };
  const status = readFileSync("/proc/self/status", "utf8");
  const field = (name: string) => (Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "mu").exec(status)![1]) * 1024) / 1e6;
  return { residentMb: field("VmRSS"), peakMb: field("VmHWM") };
}

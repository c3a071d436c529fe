/** Result of one side of the runner's benchmark. */
export interface PeerResult {
  readonly completions: number;
  readonly seconds: number;
  /** User and system time of the process. */
  readonly cpuSeconds: number;
  /** Least squares over the second half, MB of resident memory per 1,000 completions; null where it is not measured. */
  readonly megabytesPerThousand: number | null;
  /** Largest resident memory, MB; null where it is not measured. */
  readonly peakMegabytes: number | null;
  /** Name of the side, e.g. a package and its version. */
  readonly by?: string;
}

/** Completions between two looks at the memory. */
const EVERY = 250;

/** Watches time and memory from its making to `result`. */
export class Meter {
  readonly #startedAtMs = performance.now();
  readonly #startedCpu = process.cpuUsage();
  readonly #memory: { readonly thousands: number; readonly megabytes: number }[] = [];
  #count = 0;

  /** Counts a completion. */
  count(): void {
    if (++this.#count % EVERY === 0) this.#memory.push({ thousands: this.#count / 1000, megabytes: process.memoryUsage.rss() / 2 ** 20 });
  }

  result(): PeerResult {
    const { user, system } = process.cpuUsage(this.#startedCpu);
    return {
      completions: this.#count,
      seconds: (performance.now() - this.#startedAtMs) / 1000,
      cpuSeconds: (user + system) / 1e6,
      // The heap grows to its working size first.
      megabytesPerThousand: slope(this.#memory.slice(this.#memory.length / 2)),
      peakMegabytes: Math.max(...this.#memory.map(({ megabytes }) => megabytes)),
    };
  }
}

function slope(points: readonly { readonly thousands: number; readonly megabytes: number }[]): number {
  const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const x = mean(points.map(({ thousands }) => thousands));
  const y = mean(points.map(({ megabytes }) => megabytes));
  const over = points.reduce((sum, point) => sum + (point.thousands - x) * (point.megabytes - y), 0);
  return over / points.reduce((sum, point) => sum + (point.thousands - x) ** 2, 0);
}

/**
 * Peak memory of training steps, each shape in a separate process: total resident memory, and its growth after the model is loaded.
 *
 *   npm run bench -- memory [--params 2m] [--threads 2]
 *
 * Every token but the first of a row is trained. `--params 0.5b` needs 5 GB of memory, and 1 GB of disk for the weights that it reads.
 */
import { parseArgs } from "node:util";
import { hasWeights, measureInTurn, printTable, whole, withShape } from "./support.ts";

/** What the program is told. */
export interface MemoryInput {
  readonly directory: string;
  readonly rows: number;
  readonly tokens: number;
  readonly threads: number;
  /** Of the adapter; null trains every parameter. */
  readonly rank: number | null;
  readonly steps: number;
  /** Whether weights are made from a seed instead of read. */
  readonly fresh: boolean;
}

/** What it prints, in 10⁶ bytes. */
export interface MemoryResult {
  /** Resident after loading, and the peak until then. */
  readonly loadedMb: number;
  readonly loadPeakMb: number;
  /** Peak in all. */
  readonly peakMb: number;
}

/** Rows of a step. */
type Shape = Pick<MemoryInput, "rows" | "tokens" | "rank" | "steps">;

/** Shapes that are measured by default. The last two have 4,096 tokens each. */
export const SHAPES: readonly Shape[] = [
  { rows: 8, tokens: 256, rank: null, steps: 4 },
  { rows: 8, tokens: 256, rank: 16, steps: 4 },
  { rows: 16, tokens: 256, rank: null, steps: 4 },
  { rows: 4, tokens: 1024, rank: null, steps: 4 },
];

/** Shapes of large models. */
const LARGE: Readonly<Record<string, readonly Shape[]>> = {
  "135m": [
    { rows: 8, tokens: 256, rank: null, steps: 2 },
    { rows: 8, tokens: 256, rank: 16, steps: 2 },
  ],
  "0.5b": [{ rows: 2, tokens: 1024, rank: 16, steps: 2 }],
};

/** Measures steps of each shape, each in a process of its own. */
export async function measureMemory(params: string, threads: number, shapes: readonly Shape[]): Promise<MemoryResult[]> {
  const results = await withShape(params, (directory) => {
    const program = new URL("memory-engine.ts", import.meta.url);
    const input = (shape: Shape): MemoryInput => ({ directory, threads, fresh: !hasWeights(params), ...shape });
    return measureInTurn<MemoryResult>(
      shapes.map((shape) => ({ label: "whetstone", program, input: input(shape) })),
      1,
    );
  });
  return results.map(([result]) => result!);
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { params: { type: "string", default: "2m" }, threads: { type: "string", default: "2" } } });
  const threads = whole("threads", values.threads);
  console.log(`Training steps, ${values.params} parameters, ${threads} threads\n`);
  const shapes = LARGE[values.params] ?? SHAPES;
  const results = await measureMemory(values.params, threads, shapes);
  printTable(
    ["rows × tokens", "trained", "peak while loading, MB", "after loading, MB", "peak beyond that, MB", "peak in all, MB"],
    results.map(({ loadPeakMb, loadedMb, peakMb }, index) => {
      const { rows, tokens, rank } = shapes[index]!;
      const trained = rank === null ? "every parameter" : `adapter of rank ${rank}`;
      return [`${rows} × ${tokens}`, trained, ...[loadPeakMb, loadedMb, peakMb - loadedMb, peakMb].map((mb) => mb.toFixed(0))];
    }),
  );
}

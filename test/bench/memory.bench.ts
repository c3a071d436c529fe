/**
 * Peak memory of training steps: resident at the peak minus resident after loading the model, each shape in a process of its own.
 *
 *   npm run bench -- memory [--params 2m] [--threads 2]
 *
 * Every token but the first of a row is trained. The last two shapes have 4,096 tokens each.
 */
import { parseArgs } from "node:util";
import { measureInTurn, printTable, whole, withShape } from "./support.ts";

/** What the program is told. */
export interface MemoryInput {
  readonly directory: string;
  readonly rows: number;
  readonly tokens: number;
  readonly threads: number;
  /** Of the adapter; null trains every parameter. */
  readonly rank: number | null;
}

/** What it prints, in 10⁶ bytes. */
export interface MemoryResult {
  readonly loadedMb: number;
  readonly peakMb: number;
}

/** Shapes that are measured by default. */
export const SHAPES = [
  { rows: 8, tokens: 256, rank: null },
  { rows: 8, tokens: 256, rank: 16 },
  { rows: 16, tokens: 256, rank: null },
  { rows: 4, tokens: 1024, rank: null },
];

/** Measures one step per shape, each in a process of its own. */
export async function measureMemory(params: string, threads: number, shapes: typeof SHAPES): Promise<MemoryResult[]> {
  const results = await withShape(params, (directory) => {
    const program = new URL("memory-engine.ts", import.meta.url);
    const input = (shape: (typeof SHAPES)[number]): MemoryInput => ({ directory, threads, ...shape });
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
  const results = await measureMemory(values.params, threads, SHAPES);
  printTable(
    ["rows × tokens", "trained", "after loading, MB", "peak beyond that, MB"],
    results.map(({ loadedMb, peakMb }, index) => {
      const { rows, tokens, rank } = SHAPES[index]!;
      const trained = rank === null ? "every parameter" : `adapter of rank ${rank}`;
      return [`${rows} × ${tokens}`, trained, loadedMb.toFixed(0), (peakMb - loadedMb).toFixed(0)];
    }),
  );
}

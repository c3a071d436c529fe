/**
 * Time and memory of a larger model, random weights: rows forward, a training step of every parameter and of an adapter,
 * and decoding. Each in a process of its own.
 *
 *   npm run bench -- larger [--params qwen3-33m] [--rows 4] [--tokens 256] [--threads 2] [--seconds 5]
 *
 * Every token of a row but the first is trained. Memory is the peak of the process minus its memory with the loaded model.
 */
import { parseArgs } from "node:util";
import { measureInTurn, printTable, requireContext, shapeName, short, type Variant, whole, withShape } from "./support.ts";

/** Settings of the program. */
export interface LargerInput {
  readonly directory: string;
  readonly task: "forward" | "train" | "adapter" | "decode";
  readonly rows: number;
  readonly tokens: number;
  readonly threads: number;
  readonly seconds: number;
}

/** Output of the program. */
export interface LargerResult {
  /** Median of one forward pass, one step, or one batch of continuations. */
  readonly ms: number;
  /** Tokens in that. */
  readonly tokens: number;
  /** Megabytes (10⁶ bytes). */
  readonly loadedMb: number;
  readonly peakMb: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "qwen3-33m" },
      rows: { type: "string", default: "4" },
      tokens: { type: "string", default: "256" },
      threads: { type: "string", default: "2" },
      seconds: { type: "string", default: "5" },
    },
  });
  const common = {
    rows: whole("rows", values.rows),
    tokens: whole("tokens", values.tokens, 2),
    threads: whole("threads", values.threads),
    seconds: whole("seconds", values.seconds),
  };
  const params = shapeName(values.params);
  await requireContext(params, common.tokens);
  const shape = `${common.rows} × ${common.tokens}`;
  const tasks: readonly (readonly [string, LargerInput["task"], number])[] = [
    [`forward, ${shape}`, "forward", common.rows],
    [`training step, every parameter, ${shape}`, "train", common.rows],
    [`training step, adapter of rank 16, ${shape}`, "adapter", common.rows],
    ["decoding, 1 row", "decode", 1],
    ["decoding, 8 rows", "decode", 8],
    ["decoding, 32 rows", "decode", 32],
  ];
  console.log(`${params}, ${common.threads} threads (decoding: 1), medians of ${common.seconds} s\n`);
  const results = await withShape(params, (directory) => {
    const program = new URL("larger-engine.ts", import.meta.url);
    const variants = tasks.map(([label, task, rows]): Variant => ({ label, program, input: { directory, ...common, task, rows } }));
    return measureInTurn<LargerResult>(variants, 1);
  });
  printTable(
    ["", "ms", "tokens/s", "loaded, MB", "peak beyond that, MB"],
    results.map(([result], index) => {
      const { ms, tokens, loadedMb, peakMb } = result!;
      return [tasks[index]![0], ms.toFixed(0), short((tokens * 1000) / ms), loadedMb.toFixed(0), (peakMb - loadedMb).toFixed(0)];
    }),
  );
}

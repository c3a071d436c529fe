/**
 * Reading and validating trajectories from JSON Lines, compared with `JSON.parse` of the same lines; and writing them.
 *
 *   npm run bench -- jsonl [--mb 200] [--rounds 3] [--gzip]
 *
 * The trajectories have three turns of 32 to 256 sampled tokens each, with token ids, log-probabilities and bytes, as the service sends them.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { measureInTurn, median, printTable, whole, type Variant } from "./support.ts";

/** Settings of the program. */
export interface JsonlInput {
  readonly path: string;
  /**
   * `write` writes the file; `parse` times `JSON.parse` of its lines, which are in memory by then; `lines` also reads the file;
   * `read` is `readTrajectories`.
   */
  readonly mode: "write" | "parse" | "lines" | "read";
  /** For `write`. */
  readonly sizeBytes: number;
}

/** Output of the program. */
export interface JsonlResult {
  readonly count: number;
  /** Size of the parsed or written text, before compression. */
  readonly sizeBytes: number;
  /** Processor time of all threads over the part that counts. */
  readonly cpuSeconds: number;
  /** The most memory that the process had. */
  readonly peakRssMb: number;
}

const LABELS = {
  parse: "JSON.parse of the lines alone",
  lines: "reading lines, JSON.parse",
  read: "readTrajectories",
} as const;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      mb: { type: "string", default: "200" },
      rounds: { type: "string", default: "3" },
      gzip: { type: "boolean", default: false },
    },
  });
  const [megabytes, rounds] = [whole("mb", values.mb), whole("rounds", values.rounds)];
  const directory = await mkdtemp(join(tmpdir(), "whetstone-bench-"));
  try {
    const path = join(directory, values.gzip ? "trajectories.jsonl.gz" : "trajectories.jsonl");
    const variant = (mode: JsonlInput["mode"], label: string): Variant => ({
      label,
      program: new URL("jsonl-variant.ts", import.meta.url),
      input: { path, mode, sizeBytes: megabytes * 1e6 } satisfies JsonlInput,
    });
    const written = (await measureInTurn<JsonlResult>([variant("write", "writing")], 1))[0]![0]!;
    const megabytesWritten = written.sizeBytes / 1e6;
    console.log(
      `${written.count} trajectories, ${megabytesWritten.toFixed(0)} MB of text, ${rounds} rounds in turn, medians of processor time\n`,
    );
    const variants = Object.entries(LABELS).map(([mode, label]) => variant(mode as keyof typeof LABELS, label));
    const results = await measureInTurn<JsonlResult>(variants, rounds);
    if (results.flat().some(({ count }) => count !== written.count)) throw new Error("Expected every variant to see every trajectory");
    const seconds = results.map((each) => median(each.map(({ cpuSeconds }) => cpuSeconds)));
    const row = (label: string, cpuSeconds: number, peakRssMb: number) => [
      label,
      cpuSeconds.toFixed(2),
      (cpuSeconds / seconds[0]!).toFixed(2),
      (megabytesWritten / cpuSeconds).toFixed(0),
      peakRssMb.toFixed(0),
    ];
    printTable(
      ["", "CPU s", "ratio", "MB per CPU s", "peak RSS, MB"],
      [
        ...variants.map(({ label }, index) => row(label, seconds[index]!, Math.max(...results[index]!.map(({ peakRssMb }) => peakRssMb)))),
        row("making and writing them", written.cpuSeconds, written.peakRssMb),
      ],
    );
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

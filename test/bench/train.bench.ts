/**
 * Training tokens per second: forward, backward, clip and AdamW of this engine's trainer, compared with the same in plain PyTorch.
 *
 *   npm run bench -- train [--params tiny|2m|27m|135m] [--rows 128 --tokens 41 --trained 12] [--lora 16] [--threads 2] [--rounds 3] [--vs torch]
 *
 * Tokens of rows count, padding does not, for either side. Without `--rows` and `--tokens` three shapes are
 * measured: rollouts in groups, as RL trains on, and rows of one length that have nothing in common.
 */
import { parseArgs } from "node:util";
import {
  hasTorch,
  measureInTurn,
  median,
  OptionError,
  printTable,
  requireContext,
  shapeName,
  short,
  type Variant,
  wantsTorch,
  whole,
  withShape,
} from "./support.ts";

/** A row, and how many of its last tokens are trained. */
export interface TrainRow {
  readonly tokens: readonly number[];
  readonly trained: number;
}

/** Settings of both programs. */
export interface TrainInput {
  readonly directory: string;
  readonly rows: readonly TrainRow[];
  /** Rank of an adapter on every linear layer; null trains every parameter. */
  readonly rank: number | null;
  readonly threads: number;
  readonly seconds: number;
  /** Device of PyTorch. @default "cpu" */
  readonly device?: string | null;
}

/** Output of both programs. */
export interface TrainResult {
  /** Median of the steps. */
  readonly msPerStep: number;
  /** Processor time of all threads. */
  readonly cpuMsPerStep: number;
  readonly loss: number;
}

/** Rows of a step. */
export interface TrainShape {
  readonly label: string;
  readonly rows: readonly TrainRow[];
}

const VOCABULARY = 500;

/** Rows of one length with nothing in common. */
export function equalRows(count: number, length: number, trained: number): TrainShape {
  const rows = Array.from({ length: count }, (_, row) => ({
    tokens: Array.from({ length }, (__, t) => (row * 31 + t * 17 + ((row * t) % 7)) % VOCABULARY),
    trained,
  }));
  return { label: `${count} × ${length}, ${trained} trained`, rows };
}

/** Rows as a job of RL has them: groups of rollouts, each on one prompt, with answers of `shortest` to `longest` tokens. */
export function rolloutRows(groups: number, size: number, prompt: number, shortest: number, longest: number): TrainShape {
  const rows = Array.from({ length: groups * size }, (_, row) => {
    const group = Math.floor(row / size);
    const trained = shortest + ((row * 53) % (longest - shortest + 1));
    const tokens = Array.from({ length: prompt + trained }, (__, t) =>
      t < prompt ? (group * 31 + t * 17) % VOCABULARY : (row * 29 + t * 13 + ((row * t) % 11)) % VOCABULARY,
    );
    return { tokens, trained };
  });
  return { label: `${groups} groups of ${size}, prompts of ${prompt}, answers of ${shortest} to ${longest}`, rows };
}

/** Shapes that are measured by default. */
export const DEFAULT_SHAPES = [rolloutRows(4, 8, 128, 32, 160), equalRows(128, 41, 12), equalRows(8, 256, 255)];

/** Settings of {@link measureTraining}. */
export interface TrainSettings {
  /** Shape of the model, as `--params` names it. */
  readonly params: string;
  readonly shapes: readonly TrainShape[];
  readonly rank: number | null;
  readonly threads: number;
  readonly rounds: number;
  /** Seconds per shape, side and round. */
  readonly seconds: number;
  readonly withTorch: boolean;
}

/** Medians of one side for one shape. */
export interface TrainLine {
  readonly shape: string;
  readonly side: string;
  readonly tokensPerSecond: number;
  readonly msPerStep: number;
  readonly cpuMsPerStep: number;
}

/** Measures training steps of every shape on every side; this engine's line comes first, then PyTorch's. */
export function measureTraining({ params, shapes, withTorch, rounds, ...input }: TrainSettings): Promise<TrainLine[]> {
  return withShape(params, async (directory) => {
    const lines: TrainLine[] = [];
    for (const { label: shape, rows } of shapes) {
      const given: TrainInput = { directory, rows, ...input };
      const variants: Variant[] = [{ label: "whetstone", program: new URL("train-engine.ts", import.meta.url), input: given }];
      if (withTorch) variants.push({ label: "PyTorch", program: new URL("torch_train.py", import.meta.url), input: given });
      const results = await measureInTurn<TrainResult>(variants, rounds);
      const tokens = rows.reduce((sum, row) => sum + row.tokens.length, 0);
      for (const [index, { label: side }] of variants.entries()) {
        const each = results[index]!;
        if (!each.every((result) => Number.isFinite(result.loss))) throw new Error(`${side} did not train: the loss is not finite`);
        const msPerStep = median(each.map((result) => result.msPerStep));
        const cpuMsPerStep = median(each.map((result) => result.cpuMsPerStep));
        lines.push({ shape, side, tokensPerSecond: (tokens * 1000) / msPerStep, msPerStep, cpuMsPerStep });
      }
    }
    return lines;
  });
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "tiny" },
      rows: { type: "string" },
      tokens: { type: "string" },
      trained: { type: "string" },
      lora: { type: "string" },
      threads: { type: "string", default: "2" },
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "3" },
      vs: { type: "string" },
    },
  });
  const params = shapeName(values.params);
  const threads = whole("threads", values.threads);
  const rounds = whole("rounds", values.rounds);
  const seconds = whole("seconds", values.seconds);
  const shapes = values.rows === undefined && values.tokens === undefined ? DEFAULT_SHAPES : [oneShape(values)];
  const rank = values.lora === undefined ? null : whole("lora", values.lora);
  await requireContext(params, Math.max(...shapes.flatMap(({ rows }) => rows.map(({ tokens }) => tokens.length))));
  const withTorch = wantsTorch(values.vs) && (await hasTorch());
  const trains = rank === null ? "every parameter" : `an adapter of rank ${rank}`;
  console.log(`Training ${trains}, ${params} parameters, ${threads} threads, ${rounds} rounds of ${seconds} s in turn, medians\n`);
  const lines = await measureTraining({ params, shapes, rank, threads, rounds, seconds, withTorch });
  const table = lines.map(({ shape, side, tokensPerSecond, msPerStep, cpuMsPerStep }) => {
    const torch = lines.find((line) => line.shape === shape && line.side !== "whetstone");
    const ratio = torch === undefined ? "–" : (tokensPerSecond / torch.tokensPerSecond).toFixed(2);
    return [shape, side, short(tokensPerSecond), ratio, msPerStep.toFixed(0), (cpuMsPerStep / 1000).toFixed(3)];
  });
  printTable(["rows", "", "tokens/s", "ratio", "ms/step", "CPU s/step"], table);
}

function oneShape(values: { rows?: string | undefined; tokens?: string | undefined; trained?: string | undefined }) {
  const tokens = whole("tokens", values.tokens ?? "41", 2);
  const trained = whole("trained", values.trained ?? String(tokens - 1));
  if (trained >= tokens)
    throw new OptionError(`Expected --trained to be less than --tokens (nothing predicts the first), got ${trained} of ${tokens}`);
  return equalRows(whole("rows", values.rows ?? "128"), tokens, trained);
}

/**
 * Memory and time per RL step of a service over many steps of 16 × 16 rollouts and a job.
 *
 *   npm run bench -- endurance [--steps 200]
 *
 * A fixed computation is timed before each step, which distinguishes a slower machine from a slower service.
 */
import { parseArgs } from "node:util";
import { measureInTurn, median, printTable, whole } from "./support.ts";

/** Settings of the program. */
export interface EnduranceInput {
  readonly steps: number;
}

/** Output of the program; one value per step. */
export interface EnduranceResult {
  /** Resident memory after the step, in 10⁶ bytes. */
  readonly rssMb: readonly number[];
  readonly ms: readonly number[];
  readonly referenceMs: readonly number[];
}

const WINDOW = 20;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { steps: { type: "string", default: "200" } } });
  const steps = whole("steps", values.steps, 2 * WINDOW);
  console.log(`${steps} RL steps in one service, 16 × 16 rollouts each\n`);
  const program = new URL("endurance-service.ts", import.meta.url);
  const [[result]] = (await measureInTurn<EnduranceResult>([{ label: "service", program, input: { steps } }], 1)) as [[EnduranceResult]];
  const line = (name: string, first: number, last: number, digits: number) => [
    name,
    first.toFixed(digits),
    last.toFixed(digits),
    (last / first).toFixed(2),
  ];
  const middle = (of: readonly number[], start: number) => median(of.slice(start, start + WINDOW));
  const [first, last] = [WINDOW - 1, steps - 1];
  printTable(
    ["", "first", "last", "ratio"],
    [
      line(`resident memory after step ${WINDOW} and step ${steps}, MB`, result.rssMb[first]!, result.rssMb[last]!, 0),
      line(`median time of the first and the last ${WINDOW} steps, ms`, middle(result.ms, 0), middle(result.ms, steps - WINDOW), 0),
      line("the fixed computation, ms", middle(result.referenceMs, 0), middle(result.referenceMs, steps - WINDOW), 1),
    ],
  );
}

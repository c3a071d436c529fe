/** Main numbers at the top of a run's page. */
import type { ComponentChildren } from "preact";
import type { CheckpointData, ColumnsData, Split } from "../../../run/data.ts";
import { number, seconds } from "./format.ts";

/** Number with its name and, if it has one, its unit. */
type Headline = readonly [name: string, value: ComponentChildren, unit?: string];

/** Metric of the rewards. */
const REWARD = "reward/mean";

/** Properties of {@link Numbers}. */
interface NumbersProps {
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
  readonly checkpoints: readonly CheckpointData[];
}

/** The main numbers of a run: rewards, best evaluation, steps, time, checkpoints. */
export function Numbers({ metrics, checkpoints }: NumbersProps) {
  const { train, eval: evaluations } = metrics;
  const valuesOf = ({ columns }: ColumnsData, key: string) => (columns[key] ?? []).filter((value) => value !== null);
  const rewards = valuesOf(train, REWARD);
  const evaluated = valuesOf(evaluations, REWARD);
  const times = valuesOf(train, "time/step_seconds");
  const best = bestEvaluation(evaluations);
  const numbers: readonly (false | Headline)[] = [
    rewards.length > 0 && ["Reward, training", <Change values={rewards} />],
    evaluated.length > 0 && ["Reward, evaluation", <Change values={evaluated} />],
    best !== null && ["Best evaluation", number(best.reward), `after ${best.step} steps`],
    train.steps.length > 0 && ["Steps", number(train.steps.length)],
    // The sum of the steps excludes interruptions.
    times.length > 0 && ["Time in steps", seconds(times.reduce((a, b) => a + b))],
    checkpoints.length > 0 && ["Checkpoints", checkpoints.filter(({ state }) => state !== "deleted").length, "kept"],
  ];
  const shown = numbers.filter((each) => each !== false);
  if (shown.length === 0) return null;
  return (
    <dl class="numbers">
      {shown.map(([name, value, unit]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>
            {value}
            {unit && <small>{` ${unit}`}</small>}
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** First and last value of a metric. */
function Change({ values }: { readonly values: readonly number[] }) {
  return (
    <>
      {number(values[0])}
      <i class="arrow"> → </i>
      {number(values.at(-1))}
    </>
  );
}

/**
 * Returns the evaluation with the largest mean reward, the first of equal ones; null without an evaluation. The mean of a training step is
 * over other scenarios at each step, so its largest value is mostly the step with the easiest ones.
 */
function bestEvaluation({ steps, columns }: ColumnsData): { readonly step: number; readonly reward: number } | null {
  let best: { readonly step: number; readonly reward: number } | null = null;
  for (const [index, reward] of (columns[REWARD] ?? []).entries()) {
    const step = steps[index];
    if (reward !== null && step !== undefined && (best === null || reward > best.reward)) best = { step, reward };
  }
  return best;
}

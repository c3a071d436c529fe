import type { ComponentChildren } from "preact";
import type { CheckpointData, ColumnsData, Split } from "../../report/page-data.ts";
import { number, seconds } from "./format.ts";

/** Name and value of a number at the top of a page. */
type Headline = readonly [name: string, value: ComponentChildren, unit?: string];

/** The main numbers of a run: rewards, best step, steps, time, checkpoints. */
export function Numbers({
  metrics,
  checkpoints,
}: {
  readonly metrics: Readonly<Record<Split, ColumnsData>>;
  readonly checkpoints: readonly CheckpointData[];
}) {
  const { train, eval: evaluations } = metrics;
  const known = ({ columns }: ColumnsData, key: string) => (columns[key] ?? []).filter((value) => value !== null);
  const rewards = known(train, "reward/mean");
  const evaluated = known(evaluations, "reward/mean");
  const times = known(train, "time/step_seconds");
  const best = rewards.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const bestStep = train.steps[train.columns["reward/mean"]?.indexOf(best) ?? -1];
  const numbers: readonly (false | Headline)[] = [
    rewards.length > 0 && ["Reward, training", <Change values={rewards} />],
    evaluated.length > 0 && ["Reward, evaluation", <Change values={evaluated} />],
    rewards.length > 0 && ["Best step", number(best), `step ${bestStep}`],
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

function Change({ values }: { readonly values: readonly number[] }) {
  return (
    <>
      {number(values[0])}
      <i class="arrow"> → </i>
      {number(values.at(-1))}
    </>
  );
}

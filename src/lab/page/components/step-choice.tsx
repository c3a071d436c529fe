import type { Split } from "../../../run/data.ts";
import { Select, Segmented } from "./controls.tsx";

/** Step of a run with a file of trajectories. */
interface Step {
  readonly split: Split;
  readonly step: number;
}

interface StepChoiceProps<Each extends Step> {
  readonly steps: readonly Each[];
  readonly step: Each;
  readonly label?: string;
  /** Returns a further text about a step; empty for none. */
  readonly about: (step: Each) => string;
  readonly onChange: (step: Each) => void;
}

/** Choice of a step: split, number, neighbors. */
export function StepChoice<Each extends Step>({ steps, step, label = "Step", about, onChange }: StepChoiceProps<Each>) {
  const splits = [...new Set(steps.map(({ split }) => split))];
  const own = steps.filter(({ split }) => split === step.split);
  const index = own.findIndex(({ step: number }) => number === step.step);
  const go = (target: Each | undefined) => target && onChange(target);
  const move = (distance: number, name: string, sign: string) => (
    <button type="button" aria-label={name} disabled={!own[index + distance]} onClick={() => go(own[index + distance])}>
      {sign}
    </button>
  );
  /** Goes to the step of another split that is nearest to the current one. */
  const toSplit = (split: string) => {
    const distance = (each: Each) => Math.abs(each.step - step.step);
    const same = steps.filter((each) => each.split === split);
    go(same.toSorted((a, b) => distance(a) - distance(b))[0]);
  };
  const options = own.map((each) => ({ value: `${each.step}`, label: `step ${each.step}${about(each) && ` · ${about(each)}`}` }));
  return (
    <>
      {splits.length > 1 && <SplitChoice splits={splits} name="split" value={step.split} onChange={toSplit} />}
      <div class="stepper">
        {move(-1, "Earlier step", "‹")}
        <Select
          label={label}
          options={options}
          value={`${step.step}`}
          onChange={(value) => go(own.find((each) => `${each.step}` === value))}
        />
        {move(1, "Later step", "›")}
      </div>
    </>
  );
}

interface SplitChoiceProps {
  readonly splits: readonly Split[];
  readonly name: string;
  readonly value: string;
  readonly onChange: (split: string) => void;
}

/** Choice between the rollouts of training and of evaluations. */
export function SplitChoice({ splits, name, value, onChange }: SplitChoiceProps) {
  const options = splits.map((split) => ({ value: split, label: split === "train" ? "Training" : "Evaluation" }));
  return <Segmented legend="Rollouts of" options={options} name={name} value={value} onChange={(chosen) => onChange(chosen.value)} />;
}

/** Choice of the step with the shown trajectories. */
import type { Split } from "../../../run/data.ts";
import { Select, Segmented } from "./controls.tsx";

/** Step of a run with a file of trajectories. */
interface Step {
  readonly split: Split;
  readonly step: number;
}

/** Properties of {@link StepChoice}. */
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
  const stepsOfSplit = steps.filter(({ split }) => split === step.split);
  const index = stepsOfSplit.findIndex((each) => each.step === step.step);
  const choose = (target: Each | undefined) => {
    if (target !== undefined) onChange(target);
  };
  /** Returns the button of the step `distance` places further in the list. */
  const moveButton = (distance: number, name: string, sign: string) => {
    const target = stepsOfSplit[index + distance];
    return (
      <button type="button" aria-label={name} disabled={target === undefined} onClick={() => choose(target)}>
        {sign}
      </button>
    );
  };
  /** Goes to the step of another split that is nearest to the current one. */
  const toSplit = (split: string) => {
    const distance = (each: Each) => Math.abs(each.step - step.step);
    const [nearest] = steps.filter((each) => each.split === split).sort((a, b) => distance(a) - distance(b));
    choose(nearest);
  };
  const labelOf = (each: Each) => [`step ${each.step}`, about(each)].filter((text) => text !== "").join(" · ");
  const options = stepsOfSplit.map((each) => ({ value: `${each.step}`, label: labelOf(each) }));
  return (
    <>
      {splits.length > 1 && <SplitChoice splits={splits} name="split" value={step.split} onChange={toSplit} />}
      <div class="stepper">
        {moveButton(-1, "Earlier step", "‹")}
        <Select
          label={label}
          options={options}
          value={`${step.step}`}
          onChange={(value) => choose(stepsOfSplit.find((each) => `${each.step}` === value))}
        />
        {moveButton(1, "Later step", "›")}
      </div>
    </>
  );
}

/** Properties of {@link SplitChoice}. */
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

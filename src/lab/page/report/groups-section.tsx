/** Section of the report with the groups of a step. */
import type { PageData, StepData } from "../../report/page-data.ts";
import type { Split } from "../../../run/data.ts";
import { count } from "../components/format.ts";
import { GroupCards, groupFacts } from "../components/groups.tsx";
import { StepChoice } from "../components/step-choice.tsx";
import { focusTrajectory } from "../components/trajectory.tsx";
import { showStep, showTrajectory, type View } from "./view.ts";

/** Section of the current step's groups, side by side. */
export function GroupsSection({ data, view }: { readonly data: PageData; readonly view: View }) {
  const step = data.steps[view.step];
  if (step === undefined) {
    return (
      <section id="groups" aria-labelledby="groups-title">
        <h2 id="groups-title">Groups</h2>
        <p class="empty">The run has no file of trajectories yet.</p>
      </section>
    );
  }
  const open = (group: number, trajectory: number) => {
    showTrajectory(step, group, trajectory);
    focusTrajectory();
  };
  return (
    <section id="groups" aria-labelledby="groups-title">
      <div class="bar">
        <h2 id="groups-title">Groups</h2>
        <div class="controls">
          <StepChoice steps={data.steps} step={step} about={reasonOf} onChange={showStep} />
        </div>
      </div>
      <p class="about">
        {groupFacts(step).join(" · ")} · <code>{step.file}</code>
      </p>
      <GroupCards groups={step.groups} shown={view} onOpen={open} />
      <p class="left-out">{leftOut(data)}</p>
    </section>
  );
}

/** Returns the text about a step in the choice of the step. */
function reasonOf({ reason }: StepData): string {
  return reason === "spaced" ? "" : reason;
}

/** Describes the steps in the page, the omitted steps, and the location of their files. */
function leftOut({ steps, available }: PageData): string {
  const keptSteps = (split: Split) => steps.filter((each) => each.split === split).length;
  const [keptTrain, keptEvaluations] = [keptSteps("train"), keptSteps("eval")];
  const { train, eval: evaluations } = available;
  const files = [train > 0 && "trajectories/train/", evaluations > 0 && "trajectories/eval/"].filter(Boolean).join(" and ");
  const kept = `${keptTrain} of ${count(train, "training step")} and ${keptEvaluations} of ${count(evaluations, "evaluation")}`;
  if (keptTrain === train && keptEvaluations === evaluations)
    return `The trajectories of all steps are in this page; the files they come from are in ${files} of the run directory.`;
  return `This page holds the trajectories of ${kept}: the first, the last, the best, and others evenly spaced. The rest are in ${files} of the run directory; the curves show every step.`;
}

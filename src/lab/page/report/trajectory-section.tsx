/** Section of the report with one trajectory. */
import { useState } from "preact/hooks";
import type { PageData } from "../../report/page-data.ts";
import { type Coloring, COLORINGS } from "../components/coloring.ts";
import { Conversation } from "../components/conversation.tsx";
import { ColoringControl, Siblings, TrajectoryFacts, usableColoring } from "../components/trajectory.tsx";
import { showTrajectory, type View } from "./view.ts";

/** Section of the trajectory that the address names; contents that were omitted from the page are named by their file and line. */
export function TrajectorySection({ data, view }: { readonly data: PageData; readonly view: View }) {
  const [chosenColoring, setChosenColoring] = useState<Coloring>(COLORINGS[0]);
  const step = data.steps[view.step];
  if (step === undefined) return null;
  const group = step.groups[view.group];
  const trajectory = group?.trajectories[view.trajectory];
  const coloring = usableColoring(chosenColoring, trajectory?.detail ?? null);
  const isShown = group !== undefined && trajectory !== undefined;
  return (
    <section id="trajectory" aria-labelledby="trajectory-title">
      <div class="bar">
        <h2 id="trajectory-title" tabIndex={-1}>
          Trajectory {isShown && <span class="which">{`${group.id} · ${view.trajectory}`}</span>}
        </h2>
        <div class="controls">
          {isShown && <ColoringControl detail={trajectory.detail} coloring={coloring} onChange={setChosenColoring} />}
        </div>
      </div>
      <Siblings
        trajectories={isShown ? group.trajectories : []}
        shown={view.trajectory}
        onOpen={(index) => showTrajectory(step, view.group, index)}
      />
      <div class="reader">
        {isShown ? (
          <>
            {trajectory.detail === null ? (
              <div class="conversation">
                <p class="empty">
                  {`Left out to keep this page small. It is in ${step.file}, line ${group.line}, trajectory ${view.trajectory}.`}
                </p>
              </div>
            ) : (
              <Conversation
                key={`${view.step}/${view.group}/${view.trajectory}`}
                detail={trajectory.detail}
                advantage={trajectory.advantage}
                coloring={coloring}
                isTraining={step.split === "train"}
              />
            )}
            <TrajectoryFacts group={group} trajectory={trajectory} />
          </>
        ) : (
          <p class="empty">No rollout of this step ended with a trajectory.</p>
        )}
      </div>
    </section>
  );
}

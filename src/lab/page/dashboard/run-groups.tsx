/** View of a run that shows the groups of a step as cards, and one of their trajectories. */
import { useState } from "preact/hooks";
import type { Page, StepSummary } from "../../dashboard/api.ts";
import type { GroupData } from "../../report/page-data.ts";
import { Pager } from "../components/controls.tsx";
import { rewardText } from "../components/format.ts";
import { GroupCards, groupFacts } from "../components/groups.tsx";
import { StepChoice } from "../components/step-choice.tsx";
import { focusTrajectory } from "../components/trajectory.tsx";
import { useResource } from "./requests.ts";
import { go, goWith, href, type PageRoute } from "./router.ts";
import { Loaded } from "./status.tsx";
import { placeOf, TrajectoryPanel } from "./trajectory-panel.tsx";

/** Groups of a page. */
const PAGE_GROUPS = 48;

/** Groups of the step in the address side by side, and the open trajectory. Without a step, shows the last training step. */
export function RunGroups({
  run,
  steps,
  route,
}: {
  readonly run: string;
  readonly steps: readonly StepSummary[];
  readonly route: PageRoute;
}) {
  // The path is `runs/{run}/groups/{split}/{step}/{line}/{index}`.
  const [, , , split, stepNumber] = route.path;
  const step =
    steps.find((each) => each.split === split && each.step === Number(stepNumber)) ??
    steps.findLast((each) => each.split === "train") ??
    steps.at(-1);
  /** Index of the first group of the page. */
  const [offset, setOffset] = useState(0);
  const place = placeOf(route.path.slice(3));
  // A step that has grown is requested again.
  const version = `${step?.trajectories}`;
  const path =
    step && `/ui/api/runs/${encodeURIComponent(run)}/steps/${step.split}/${step.step}/groups?offset=${offset}&limit=${PAGE_GROUPS}`;
  const groups = useResource<Page<GroupData>>(path ?? null, version);
  if (step === undefined) return <p class="empty">The run has no file of trajectories yet.</p>;
  const address = (line: number, index: number) =>
    href(["runs", run, "groups", step.split, `${step.step}`, `${line}`, `${index}`], Object.fromEntries(route.query));
  const toStep = (target: StepSummary) => {
    setOffset(0);
    goWith(route, ["runs", run, "groups", target.split, `${target.step}`]);
  };
  return (
    <>
      <section id="groups" aria-labelledby="groups-title">
        <div class="bar">
          <h2 id="groups-title">Groups</h2>
          <div class="controls">
            <StepChoice steps={steps} step={step} about={stepText} onChange={toStep} />
          </div>
        </div>
        <Loaded resource={groups} what="groups">
          {({ items, total }) => (
            <>
              <p class="about">
                {groupFacts({ groups: items, omitted: 0 }).join(" · ")}
                {total > items.length && ` · groups ${offset + 1} to ${offset + items.length} of ${total}`}
              </p>
              <GroupCards
                groups={items}
                isRemote
                shown={{ group: items.findIndex(({ line }) => line === place?.line), trajectory: place?.index ?? -1 }}
                onOpen={(group, trajectory) => {
                  const line = items[group]?.line;
                  if (line === undefined) return;
                  go(address(line, trajectory));
                  // The panel of the trajectory exists after the next frame.
                  requestAnimationFrame(() => requestAnimationFrame(focusTrajectory));
                }}
              />
              <Pager
                label="Pages of groups"
                earlier="Earlier groups"
                later="Later groups"
                total={total}
                offset={offset}
                size={PAGE_GROUPS}
                onChange={setOffset}
              />
            </>
          )}
        </Loaded>
      </section>
      {place !== null && <TrajectoryPanel run={run} place={place} onOpen={(index) => go(address(place.line, index))} />}
    </>
  );
}

/** Returns the text about a step in the choice of the step. */
export function stepText({ reward }: StepSummary): string {
  return reward === null ? "" : rewardText(reward);
}

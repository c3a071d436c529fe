import { useState } from "preact/hooks";
import type { Page, StepSummary } from "../../dashboard/api.ts";
import type { GroupData } from "../../report/page-data.ts";
import type { Split } from "../../../run/data.ts";
import { Segmented } from "../components/controls.tsx";
import { rewardText } from "../components/format.ts";
import { GroupCards, groupFacts } from "../components/groups.tsx";
import { useResource } from "./requests.ts";
import { go, href, type Route } from "./router.ts";
import { Loaded } from "./status.tsx";
import { focusTrajectory, placeOf, TrajectoryPanel } from "./trajectory-panel.tsx";

const PAGE_GROUPS = 48;

/** Groups of a step side by side, and the trajectory that is open. */
export function RunGroups({ run, steps, route }: { readonly run: string; readonly steps: readonly StepSummary[]; readonly route: Route }) {
  const [, , , split, number] = route.path;
  const step =
    steps.find((each) => each.split === split && each.step === Number(number)) ??
    steps.findLast((each) => each.split === "train") ??
    steps.at(-1);
  const [offset, setOffset] = useState(0);
  const place = placeOf(route.path.slice(3));
  const version = `${step?.trajectories}`;
  const path =
    step && `/ui/api/runs/${encodeURIComponent(run)}/steps/${step.split}/${step.step}/groups?offset=${offset}&limit=${PAGE_GROUPS}`;
  const groups = useResource<Page<GroupData>>(path ?? null, version);
  if (step === undefined) return <p class="empty">The run has no file of trajectories yet.</p>;
  const address = (line: number, index: number) =>
    href(["runs", run, "groups", step.split, `${step.step}`, `${line}`, `${index}`], Object.fromEntries(route.query));
  const toStep = (target: StepSummary) => {
    setOffset(0);
    go(href(["runs", run, "groups", target.split, `${target.step}`], Object.fromEntries(route.query)), { isReplaced: true });
  };
  return (
    <>
      <section id="groups" aria-labelledby="groups-title">
        <div class="bar">
          <h2 id="groups-title">Groups</h2>
          <div class="controls">
            <StepChoice steps={steps} step={step} onChange={toStep} />
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
                shown={{
                  group: place === null ? -1 : items.findIndex(({ line }) => line === place.line),
                  trajectory: place?.index ?? -1,
                }}
                onOpen={(group, trajectory) => {
                  const line = items[group]?.line;
                  if (line === undefined) return;
                  go(address(line, trajectory));
                  requestAnimationFrame(() => requestAnimationFrame(focusTrajectory));
                }}
              />
              {total > PAGE_GROUPS && (
                <nav class="pager" aria-label="Pages of groups">
                  <button type="button" class="button" disabled={offset === 0} onClick={() => setOffset(offset - PAGE_GROUPS)}>
                    Earlier groups
                  </button>
                  <button
                    type="button"
                    class="button"
                    disabled={offset + PAGE_GROUPS >= total}
                    onClick={() => setOffset(offset + PAGE_GROUPS)}
                  >
                    Later groups
                  </button>
                </nav>
              )}
            </>
          )}
        </Loaded>
      </section>
      {place !== null && <TrajectoryPanel run={run} place={place} onOpen={(index) => go(address(place.line, index))} />}
    </>
  );
}

/** Choice of a step: split, number, neighbors. */
export function StepChoice({
  steps,
  step,
  label = "Step",
  onChange,
}: {
  readonly steps: readonly StepSummary[];
  readonly step: StepSummary;
  readonly label?: string;
  readonly onChange: (step: StepSummary) => void;
}) {
  const splits = [...new Set(steps.map(({ split }) => split))];
  const own = steps.filter(({ split }) => split === step.split);
  const at = own.findIndex(({ step: number }) => number === step.step);
  const move = (by: number, name: string, sign: string) => {
    const target = own[at + by];
    return (
      <button type="button" aria-label={name} disabled={!target} onClick={() => target && onChange(target)}>
        {sign}
      </button>
    );
  };
  const toSplit = (split: string) => {
    const same = steps.filter((each) => each.split === split);
    const near = same.reduce<StepSummary | undefined>(
      (best, each) => (best !== undefined && Math.abs(best.step - step.step) <= Math.abs(each.step - step.step) ? best : each),
      undefined,
    );
    if (near !== undefined) onChange(near);
  };
  const name = (split: Split) => (split === "train" ? "Training" : "Evaluation");
  return (
    <>
      {splits.length > 1 && (
        <Segmented
          legend="Rollouts of"
          options={splits.map((value) => ({ value, label: name(value) }))}
          name={`split-${label}`}
          value={step.split}
          onChange={({ value }) => toSplit(value)}
        />
      )}
      <div class="stepper">
        {move(-1, "Earlier step", "‹")}
        <select
          aria-label={label}
          value={`${step.step}`}
          onChange={({ currentTarget }) => {
            const target = own.find((each) => `${each.step}` === currentTarget.value);
            if (target !== undefined) onChange(target);
          }}
        >
          {own.map((each) => (
            <option key={each.step} value={`${each.step}`}>
              {`step ${each.step}${each.reward === null ? "" : ` · ${rewardText(each.reward)}`}`}
            </option>
          ))}
        </select>
        {move(1, "Later step", "›")}
      </div>
    </>
  );
}

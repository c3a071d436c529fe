/** Groups of a step as cards, with a row per trajectory that shows reward and advantage as bars. */
import { Fragment, type ComponentChildren } from "preact";
import type { GroupData, StepData, TrajectoryData } from "../../report/page-data.ts";
import { ShareBar } from "./controls.tsx";
import { count, rewardText, signed } from "./format.ts";

/** Summary of a step's groups: counts, mean reward, failures. */
export function groupFacts({ groups, omitted }: Pick<StepData, "groups" | "omitted">): string[] {
  const trajectories = groups.flatMap((group) => group.trajectories);
  const failed = groups.reduce((sum, group) => sum + group.exceptions.length, 0);
  const mean = trajectories.reduce((sum, each) => sum + each.reward, 0) / trajectories.length;
  const discarded = groups.filter((group) => group.isDiscarded).length;
  const untrainable = groups.filter((group) => group.trajectories.length > 1 && !group.isTrainable).length;
  const parts = [
    `${count(groups.length, "group")}, ${count(trajectories.length, "trajectory", "trajectories")}`,
    trajectories.length > 0 && `mean reward ${rewardText(mean)}`,
    failed > 0 && `${count(failed, "rollout")} failed`,
    untrainable > 0 && `${count(untrainable, "group")} with equal rewards, nothing to learn from`,
    discarded > 0 && `${count(discarded, "group")} discarded before training`,
    omitted > 0 && `${count(omitted, "trajectory", "trajectories")} without contents, to keep this page small`,
  ];
  return parts.filter((part) => part !== false);
}

/** Scales of the bars of a step. */
interface Scales {
  /** Range of the rewards; includes 0. */
  readonly low: number;
  readonly high: number;
  /** Largest absolute advantage; null hides advantages. */
  readonly maxAdvantage: number | null;
}

/** Properties of {@link GroupCards}. */
export interface GroupCardsProps {
  readonly groups: readonly GroupData[];
  /** Indexes of the trajectory that is shown. */
  readonly shown: { readonly group: number; readonly trajectory: number };
  readonly onOpen: (group: number, trajectory: number) => void;
  /** Whether a trajectory without contents can be opened by fetching them. */
  readonly isRemote?: boolean;
}

/** Groups of a step side by side, one card each; groups of one trajectory share one card. */
export function GroupCards({ groups, shown, onOpen, isRemote = false }: GroupCardsProps) {
  const isSingle = groups.every((group) => group.trajectories.length + group.exceptions.length <= 1);
  const trajectories = groups.flatMap((group) => group.trajectories);
  const bounds = trajectories.reduce(
    ({ low, high, maxAdvantage }, { reward, advantage }) => ({
      low: Math.min(low, reward),
      high: Math.max(high, reward),
      maxAdvantage: Math.max(maxAdvantage, Math.abs(advantage)),
    }),
    // Above 0, because bars are relative to these bounds.
    { low: 0, high: 1e-9, maxAdvantage: 1e-9 },
  );
  // The advantage of a single trajectory is 0.
  const scales: Scales = { ...bounds, maxAdvantage: isSingle ? null : bounds.maxAdvantage };
  const options = { scales, shown, isRemote, onOpen };
  if (!isSingle) {
    return (
      <div class="groups">
        {groups.map((group, groupIndex) => (
          <GroupCard key={groupIndex} group={group} groupIndex={groupIndex}>
            <Rows group={group} groupIndex={groupIndex} labelOf={(index) => `${index}`} {...options} />
          </GroupCard>
        ))}
      </div>
    );
  }
  return (
    <div class="groups">
      <article class="group single">
        <div class="rows">
          {groups.map((group, groupIndex) => (
            <Fragment key={groupIndex}>
              <Rows group={group} groupIndex={groupIndex} labelOf={() => group.id} {...options} />
              {group.exceptions.map((exception, index) => (
                <Failure key={index} exception={exception} label={group.id} />
              ))}
            </Fragment>
          ))}
        </div>
      </article>
    </div>
  );
}

/** Properties of {@link GroupCard}. */
interface GroupCardProps {
  readonly group: GroupData;
  readonly groupIndex: number;
  /** Rows of the trajectories. */
  readonly children: ComponentChildren;
}

/** Card of a group: mean reward, trajectories and failures. */
function GroupCard({ group, groupIndex, children }: GroupCardProps) {
  const { mean, deviation, id, trajectories, exceptions, logs } = group;
  return (
    <article class="group" data-group-card={groupIndex}>
      <header>
        <h3 title={id}>{id}</h3>
        <span class="mean" title="mean reward ± deviation">
          {mean === null || deviation === null ? (
            "no trajectory"
          ) : (
            <>
              <b>{rewardText(mean)}</b>
              {trajectories.length > 1 && ` ± ${rewardText(deviation)}`}
            </>
          )}
        </span>
      </header>
      <div class="rows">
        <div class="row head" aria-hidden="true">
          <span />
          <span>reward</span>
          <span />
          <span>advantage</span>
          <span />
        </div>
        {children}
        {exceptions.map((exception, index) => (
          <Failure key={`failure ${index}`} exception={exception} label="" />
        ))}
      </div>
      {!group.isTrainable && trajectories.length > 1 && <p class="hint">All rewards equal: nothing to learn from.</p>}
      {group.isDiscarded && <p class="hint">Discarded before training.</p>}
      {logs.length > 0 && (
        <details>
          <summary>{count(logs.length, "log line")}</summary>
          <pre>{logs.join("\n")}</pre>
        </details>
      )}
    </article>
  );
}

/** Properties of {@link Rows}. */
interface RowsProps extends Required<Pick<GroupCardsProps, "shown" | "isRemote" | "onOpen">> {
  readonly group: GroupData;
  readonly groupIndex: number;
  readonly scales: Scales;
  /** Returns the text of the row of a trajectory. */
  readonly labelOf: (index: number) => string;
}

/** Rows of a group's trajectories. */
function Rows({ group, groupIndex, scales, labelOf, shown, isRemote, onOpen }: RowsProps) {
  return group.trajectories.map((trajectory, index) => (
    <Row
      key={index}
      trajectory={trajectory}
      label={labelOf(index)}
      group={group.id}
      groupIndex={groupIndex}
      index={index}
      scales={scales}
      isBare={trajectory.detail === null && !isRemote}
      isShown={shown.group === groupIndex && shown.trajectory === index}
      onOpen={onOpen}
    />
  ));
}

/** Properties of {@link Row}. */
interface RowProps {
  readonly trajectory: TrajectoryData;
  /** Text of the row: the index of the trajectory, or the id of a group that has no card of its own. */
  readonly label: string;
  /** Id of the group. */
  readonly group: string;
  /** Index of the group. */
  readonly groupIndex: number;
  readonly index: number;
  readonly scales: Scales;
  /** Whether the contents are neither in the page nor on a service. */
  readonly isBare: boolean;
  readonly isShown: boolean;
  readonly onOpen: (group: number, trajectory: number) => void;
}

/** Button of a trajectory: its reward is a bar from the left, its advantage a bar from the middle. */
function Row({ trajectory: { reward, advantage }, label, group, groupIndex, index, scales, isBare, isShown, onOpen }: RowProps) {
  const { low, high, maxAdvantage } = scales;
  return (
    <button
      type="button"
      class={`row${isBare ? " bare" : ""}${maxAdvantage === null ? " plain" : ""}`}
      data-group={groupIndex}
      data-trajectory={index}
      aria-pressed={isShown}
      title={isBare ? "Its contents are not in this page" : undefined}
      onClick={() => onOpen(groupIndex, index)}
    >
      <span class="index">
        {label !== group && <span class="hidden">{`${group}, trajectory `}</span>}
        {label}
        {label === group && <span class="hidden">{`, trajectory ${index}`}</span>}
      </span>
      <span class="value">
        <span class="hidden">: reward </span>
        {rewardText(reward)}
      </span>
      <ShareBar share={(reward - low) / (high - low)} />
      {maxAdvantage !== null && (
        <>
          <span class="value">
            <span class="hidden">, advantage </span>
            {signed(advantage)}
          </span>
          <span class={`bar-advantage ${advantage < 0 ? "down" : "up"}`} style={{ "--share": Math.abs(advantage) / maxAdvantage }} />
        </>
      )}
    </button>
  );
}

/** Error of a failed rollout with its traceback. */
function Failure({ exception, label }: { readonly exception: GroupData["exceptions"][number]; readonly label: string }) {
  const { type, message, traceback } = exception;
  return (
    <details class="failure">
      <summary>
        {label !== "" && `${label} `}
        <b>{type || "failed"}</b> {message}
      </summary>
      <pre>{traceback || message || "No traceback was kept."}</pre>
    </details>
  );
}

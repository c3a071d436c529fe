/** Parts around the conversation of a trajectory: colors, siblings of the group, and facts. */
import type { ComponentChildren } from "preact";
import type { DetailData, GroupData, Scalars, TrajectoryData } from "../../report/page-data.ts";
import { type Coloring, COLORINGS } from "./coloring.ts";
import { Pairs, Segmented, ShareBar } from "./controls.tsx";
import { count, number, rewardText, scalar, seconds, signed } from "./format.ts";

/** Returns whether the trainer's log-probabilities of at least one turn were stored. */
export function hasTrained(detail: DetailData | null): boolean {
  return (detail?.histories ?? []).flat().some((item) => item.sampled?.trained);
}

/** Moves the focus to the trajectory that was opened. */
export function focusTrajectory(): void {
  document.getElementById("trajectory")?.scrollIntoView({ block: "start", behavior: "instant" });
  document.getElementById("trajectory-title")?.focus({ preventScroll: true });
}

/** Returns the coloring to use: the default one if the trajectory lacks the trainer's log-probabilities. */
export function usableColoring(coloring: Coloring, detail: DetailData | null): Coloring {
  return coloring.name === "difference" && !hasTrained(detail) ? COLORINGS[0] : coloring;
}

/** Properties of {@link ColoringControl}. */
interface ColoringControlProps {
  readonly detail: DetailData | null;
  readonly coloring: Coloring;
  readonly onChange: (coloring: Coloring) => void;
}

/** Choice of the token colors with a legend. */
export function ColoringControl({ detail, coloring, onChange }: ColoringControlProps) {
  const options = COLORINGS.map((item) => {
    const isMissing = item.name === "difference" && !hasTrained(detail);
    const title = isMissing ? "The run kept no log-probabilities of the trainer for this trajectory" : undefined;
    return { item, value: item.name, label: item.label, disabled: isMissing, title };
  });
  const { legend, kind } = coloring;
  return (
    <>
      <span class="legend">
        {legend && (
          <>
            <small>{legend[0]}</small>
            <i class={`scale ${kind}`} />
            <small>{legend[1]}</small>
          </>
        )}
      </span>
      <Segmented legend="Color tokens by" options={options} name="color" value={coloring.name} onChange={({ item }) => onChange(item)} />
    </>
  );
}

/** Properties of {@link Siblings}. */
interface SiblingsProps {
  readonly trajectories: readonly { readonly reward: number }[];
  /** Index of the shown trajectory. */
  readonly shown: number;
  readonly onOpen: (trajectory: number) => void;
}

/** Buttons that open the trajectories of a group; none for a group of one. */
export function Siblings({ trajectories, shown, onOpen }: SiblingsProps) {
  return (
    <nav class="siblings" aria-label="Trajectories of the group">
      {trajectories.length > 1 &&
        trajectories.map(({ reward }, index) => (
          <button key={index} type="button" aria-pressed={index === shown} onClick={() => onOpen(index)}>
            <small>
              <span class="hidden">Trajectory </span>
              {index}
            </small>
            <span class="hidden">, reward </span>
            {rewardText(reward)}
          </button>
        ))}
    </nav>
  );
}

/** Properties of {@link TrajectoryFacts}. */
interface TrajectoryFactsProps {
  readonly group: Pick<GroupData, "metadata" | "metrics">;
  readonly trajectory: TrajectoryData;
}

/** Numbers, timing, metadata and log of a trajectory. */
export function TrajectoryFacts({ group, trajectory }: TrajectoryFactsProps) {
  const { detail } = trajectory;
  const rows: [name: string, value: ComponentChildren][] = [
    ["Reward", rewardText(trajectory.reward)],
    ["Advantage", signed(trajectory.advantage)],
    ["Sampled turns", number(trajectory.turns)],
    ["Sampled tokens", number(trajectory.tokens)],
  ];
  if (detail !== null) {
    const [first, last] = detail.policies;
    const isSingle = first === last || last === null;
    if (first !== null) rows.push(["Checkpoint", isSingle ? first : `${first} to ${last}`]);
    if (detail.start !== null) rows.push(["Started", detail.start.replace("T", " ").replace("Z", " UTC")]);
  }
  return (
    <aside aria-label="Facts of the trajectory">
      <Pairs rows={rows} />
      {detail !== null && <Details detail={detail} />}
      <ScalarTable title="Group" values={{ ...group.metadata, ...group.metrics }} />
      <p class="hint">Advantage is (reward − group mean) / group deviation.</p>
    </aside>
  );
}

/** Timing, metrics, metadata, tools and log of a trajectory with contents. */
function Details({ detail }: { readonly detail: DetailData }) {
  const isTime = (name: string) => name === "duration" || name.endsWith("_duration");
  const metrics = Object.entries(detail.metrics);
  return (
    <>
      <Timing entries={metrics.filter(([name]) => isTime(name)).map(([name, value]) => [name, Number(value)])} />
      <ScalarTable title="Metrics" values={Object.fromEntries(metrics.filter(([name]) => !isTime(name)))} />
      <ScalarTable title="Metadata" values={detail.metadata} />
      {detail.tools.length > 0 && (
        <details>
          <summary>{count(detail.tools.length, "tool")}</summary>
          <Pairs rows={detail.tools.map((tool) => [tool.name, tool.description])} />
        </details>
      )}
      {detail.logs.length > 0 && (
        <>
          <h3>Log</h3>
          <pre class="log">{detail.logs.join("\n")}</pre>
        </>
      )}
    </>
  );
}

/** Table of a rollout's durations in seconds: the whole rollout, then its measured parts, longest first. */
function Timing({ entries }: { readonly entries: readonly (readonly [name: string, value: number])[] }) {
  if (entries.length === 0) return null;
  const maxSeconds = Math.max(1e-9, ...entries.map(([, value]) => value));
  const isWhole = (name: string) => name === "duration";
  const ordered = entries.toSorted(([a, secondsA], [b, secondsB]) => Number(isWhole(b)) - Number(isWhole(a)) || secondsB - secondsA);
  return (
    <>
      <h3>Timing</h3>
      <table class="timing">
        <tbody>
          {ordered.map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{isWhole(name) ? "whole rollout" : name.slice(0, -"_duration".length)}</th>
              <td>
                <ShareBar share={value / maxSeconds} />
              </td>
              <td>{seconds(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/** Table of values by name; nothing without a value. */
function ScalarTable({ title, values }: { readonly title: string; readonly values: Scalars }) {
  const rows = Object.entries(values).map(([name, value]) => [name, scalar(value)] as const);
  if (rows.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <Pairs rows={rows} />
    </>
  );
}

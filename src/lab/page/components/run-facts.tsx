/** Section with the facts of a run: settings, checkpoints, events, warnings and failures. */
import type { PageData } from "../../report/page-data.ts";
import type { CheckpointData, NoticeData } from "../../../run/data.ts";
import { Pairs, Scroll } from "./controls.tsx";
import { number } from "./format.ts";
import { type Column, DataTable } from "./table.tsx";

/** Metric that the table of checkpoints shows. */
const REWARD = "reward/mean";

/** Section of settings, checkpoints and events. */
export function RunFacts({
  facts,
  config,
  checkpoints,
  events,
  notices,
}: Pick<PageData, "facts" | "config" | "checkpoints" | "events" | "notices">) {
  return (
    <section id="facts" aria-labelledby="facts-title">
      <h2 id="facts-title">Run</h2>
      <div class="columns">
        <div>
          <h3>Facts</h3>
          <Pairs rows={facts} />
        </div>
        <div>
          <h3>Configuration</h3>
          {config.length === 0 ? <p class="empty">The run has no config.json.</p> : <Pairs rows={config} />}
        </div>
        <div>
          <h3>Checkpoints</h3>
          <CheckpointTable checkpoints={checkpoints} />
          {events.length > 0 && (
            <>
              <h3>Events</h3>
              <Pairs rows={events} />
            </>
          )}
          <Notices notices={notices} />
        </div>
      </div>
    </section>
  );
}

/** Table of the checkpoints, newest first. Columns without any value are left out. */
function CheckpointTable({ checkpoints }: { readonly checkpoints: readonly CheckpointData[] }) {
  if (checkpoints.length === 0) return <p class="empty">None was recorded.</p>;
  const hasId = checkpoints.some(({ id }) => id !== "");
  const hasRunStep = checkpoints.some(({ runStep }) => runStep !== null);
  const hasReward = checkpoints.some(({ metrics }) => REWARD in metrics);
  const columns: (false | Column<CheckpointData>)[] = [
    { label: "checkpoint", isHead: true, cell: ({ step }) => step },
    hasId && { label: "id", headClass: "id", class: "id", title: ({ id }) => id, cell: ({ id }) => id },
    hasRunStep && { label: "step", cell: ({ runStep }) => runStep ?? "–" },
    { label: "state", cell: ({ state }) => state },
    hasReward && { label: "reward", cell: ({ metrics }) => number(metrics[REWARD]) },
  ];
  return (
    <Scroll label="Checkpoints">
      <DataTable
        class="grid"
        columns={columns.filter((column) => column !== false)}
        rows={checkpoints.toReversed()}
        keyOf={(_, index) => index}
        rowClass={({ state }) => state}
      />
    </Scroll>
  );
}

/** List of the recorded warnings and failures. */
function Notices({ notices }: { readonly notices: readonly NoticeData[] }) {
  if (notices.length === 0) return null;
  return (
    <>
      <h3>Warnings and failures</h3>
      <Scroll label="Warnings and failures">
        <ul class="notices">
          {notices.map(({ type, step, message }, index) => (
            <li key={index}>
              <b>{type}</b>
              {step !== null && <small>{` step ${step} `}</small>} {message}
            </li>
          ))}
        </ul>
      </Scroll>
    </>
  );
}

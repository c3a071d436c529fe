import type { PageData } from "../../report/page-data.ts";
import type { CheckpointData, NoticeData } from "../../../run/data.ts";
import { Pairs, Scroll } from "./controls.tsx";
import { number } from "./format.ts";

/** Metric of checkpoints in their table. */
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

function CheckpointTable({ checkpoints }: { readonly checkpoints: readonly CheckpointData[] }) {
  if (checkpoints.length === 0) return <p class="empty">None was recorded.</p>;
  const hasId = checkpoints.some(({ id }) => id !== "");
  const hasRunStep = checkpoints.some(({ runStep }) => runStep !== null);
  const hasReward = checkpoints.some(({ metrics }) => REWARD in metrics);
  return (
    <Scroll label="Checkpoints">
      <table class="grid">
        <thead>
          <tr>
            <th scope="col">checkpoint</th>
            {hasId && (
              <th scope="col" class="id">
                id
              </th>
            )}
            {hasRunStep && <th scope="col">step</th>}
            <th scope="col">state</th>
            {hasReward && <th scope="col">reward</th>}
          </tr>
        </thead>
        <tbody>
          {checkpoints.toReversed().map(({ step, id, runStep, state, metrics }, index) => (
            <tr key={index} class={state}>
              <th scope="row">{step}</th>
              {hasId && (
                <td class="id" title={id}>
                  {id}
                </td>
              )}
              {hasRunStep && <td>{runStep ?? "–"}</td>}
              <td>{state}</td>
              {hasReward && <td>{number(metrics[REWARD])}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

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

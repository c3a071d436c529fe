import { useState } from "preact/hooks";
import type { MeanEstimate, RunComparison, RunSummary } from "../../dashboard/api.ts";
import { breakable, Scroll, Segmented } from "../components/controls.tsx";
import { count, rewardText } from "../components/format.ts";
import type { Live } from "./live.ts";
import { Overlay } from "./overlay.tsx";
import { useResource } from "./requests.ts";
import type { Route } from "./router.ts";
import { settingOf, settingsOf } from "./run-columns.ts";
import { Loaded } from "./status.tsx";

/** Comparison of the run with others: paired differences of rewards, and the settings in which they differ. */
export function RunCompare({ run, route, live }: { readonly run: string; readonly route: Route; readonly live: Live }) {
  const others = (route.query.get("with") ?? "").split(",").filter((id) => id !== "" && id !== run);
  const chosen = [run, ...new Set(others)].flatMap((id) => live.runs?.find((each) => each.id === id) ?? []);
  return (
    <>
      <Overlay run={run} route={route} live={live} label="Compare with another run" />
      {chosen.length < 2 ? (
        <p class="empty">Choose another run to compare rewards and settings with.</p>
      ) : (
        <>
          <PairedRewards key={chosen.map(({ id }) => id).join()} runs={chosen} />
          <SettingDifferences runs={chosen} />
        </>
      )}
    </>
  );
}

const UNITS = [
  { value: "scenario", label: "Evaluation" },
  { value: "step", label: "Training steps" },
] as const;

/** Table of mean rewards and paired differences to the first run. */
function PairedRewards({ runs }: { readonly runs: readonly RunSummary[] }) {
  const hasEvaluations = runs.every(({ evalReward }) => evalReward !== null);
  const [by, setBy] = useState<RunComparison["by"]>(hasEvaluations ? "scenario" : "step");
  const query = runs.map(({ id }) => `run=${id}`).join("&");
  // A finished evaluation or step changes the answer.
  const version = runs.map(({ steps, evalReward }) => `${steps} ${evalReward}`).join();
  const comparison = useResource<RunComparison>(`/ui/api/compare?${query}&by=${by}`, version);
  const nameOf = (id: string) => runs.find((each) => each.id === id)?.name ?? id;
  return (
    <section aria-labelledby="paired-title">
      <div class="bar">
        <h2 id="paired-title">Paired rewards</h2>
        <Segmented legend="Pairs of" options={UNITS} name="compare-by" value={by} onChange={({ value }) => setBy(value)} />
      </div>
      <Loaded resource={comparison} what="comparison">
        {({ runs: compared }) => (
          <>
            <Scroll label="Table of paired rewards">
              <table class="grid compared">
                <thead>
                  <tr>
                    {["run", "mean reward", "95 % interval", "difference", "95 % interval of the difference", "pairs"].map((name) => (
                      <th key={name} scope="col">
                        {name}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {compared.map(({ run, step, missing, estimate, difference }, at) => (
                    <tr key={run}>
                      <th scope="row">
                        {nameOf(run)}
                        {step !== null && <small>{` after ${count(step, "step")}`}</small>}
                        {missing > 0 && <small class="bad">{` ${count(missing, "scenario")} without a rollout`}</small>}
                      </th>
                      <td>{estimate === null ? "–" : rewardText(estimate.mean)}</td>
                      <td>{interval(estimate, rewardText)}</td>
                      <td class={direction(difference)}>
                        {at === 0 ? "baseline" : difference === null ? "–" : differenceText(difference.mean)}
                      </td>
                      <td>{at === 0 ? "" : interval(difference, differenceText)}</td>
                      <td>{at === 0 ? "" : (difference?.count ?? 0)}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </Scroll>
            <p class="about">{EXPLANATIONS[by]} A difference is colored if its interval excludes 0.</p>
          </>
        )}
      </Loaded>
    </section>
  );
}

const EXPLANATIONS: Readonly<Record<RunComparison["by"], string>> = {
  scenario:
    "Rewards of the last evaluation, paired by scenario. Intervals are paired bootstraps over the scenarios; they do not cover the seed of the training.",
  step: "Mean rewards of the training steps that all runs have, paired by step. Neighboring steps are correlated, so the intervals are too narrow for a statement about further runs.",
};

/** Formats a difference with its sign and three decimals. */
export function differenceText(value: number): string {
  return `${value > 0 ? "+" : ""}${rewardText(value)}`;
}

/** Formats the interval of an estimate; `–` without one. */
export function interval(estimate: MeanEstimate | null, text: (value: number) => string): string {
  if (estimate === null || estimate.low === null || estimate.high === null) return "–";
  return `${text(estimate.low)} to ${text(estimate.high)}`;
}

/** Returns the class of a difference: the sign if the interval excludes 0. */
function direction(difference: MeanEstimate | null): string | undefined {
  if (difference === null || difference.low === null || difference.high === null) return undefined;
  return difference.low > 0 ? "positive" : difference.high < 0 ? "negative" : undefined;
}

/** Table of the settings in which the runs differ. */
function SettingDifferences({ runs }: { readonly runs: readonly RunSummary[] }) {
  const all = settingsOf(runs);
  const different = all.filter(({ isDifferent }) => isDifferent);
  return (
    <section aria-labelledby="settings-title">
      <h2 id="settings-title">Different settings</h2>
      {different.length > 0 && (
        <Scroll label="Table of different settings">
          <table class="grid compared texts">
            <thead>
              <tr>
                <th scope="col">setting</th>
                {runs.map(({ id, name }) => (
                  <th key={id} scope="col">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {different.map(({ name }) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  {runs.map((run) => (
                    <td key={run.id}>{breakable(settingOf(run, name) ?? "–")}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <p class="about">
        {different.length === 0 ? "The runs have no different settings. " : ""}
        {`${count(all.length - different.length, "setting is", "settings are")} equal in all runs.`}
      </p>
    </section>
  );
}

/** View of a run that compares it with other runs: rewards and settings. */
import { useState } from "preact/hooks";
import type { MeanEstimate, RunComparison, RunSummary } from "../../dashboard/api.ts";
import { breakable, Scroll, Segmented } from "../components/controls.tsx";
import { count, rewardText } from "../components/format.ts";
import { type Column, DataTable } from "../components/table.tsx";
import { addedRuns } from "./added-runs.ts";
import type { Live } from "./live.ts";
import { useResource } from "./requests.ts";
import type { PageRoute } from "./router.ts";
import { type SettingChoice, settingOf, settingChoices } from "./run-columns.ts";
import { RunPicker } from "./run-picker.tsx";
import { Loaded } from "./status.tsx";

/** Comparison of the run with others: paired differences of rewards, and the settings in which they differ. */
export function RunCompare({ run, route, live }: { readonly run: string; readonly route: PageRoute; readonly live: Live }) {
  const chosen = [run, ...addedRuns(route.query, run)].flatMap((id) => live.runs?.find((each) => each.id === id) ?? []);
  return (
    <>
      <RunPicker run={run} route={route} live={live} label="Compare with another run" />
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

/** Row of a run in the comparison. */
type Compared = RunComparison["runs"][number];

/** Units of the pairs. */
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
  const isBaseline = ({ run }: Compared) => run === runs[0]?.id;
  const columns: Column<Compared>[] = [
    {
      label: "run",
      isHead: true,
      cell: ({ run, step, missing }) => [
        nameOf(run),
        step !== null && <small>{` after ${count(step, "step")}`}</small>,
        missing > 0 && <small class="bad">{` ${count(missing, "scenario")} without a rollout`}</small>,
      ],
    },
    { label: "mean reward", cell: ({ estimate }) => (estimate === null ? "–" : rewardText(estimate.mean)) },
    { label: "95 % interval", cell: ({ estimate }) => interval(estimate, rewardText) },
    {
      label: "difference",
      class: ({ difference }) => direction(difference),
      cell: (row) => {
        if (isBaseline(row)) return "baseline";
        return row.difference === null ? "–" : differenceText(row.difference.mean);
      },
    },
    {
      label: "95 % interval of the difference",
      cell: (row) => (isBaseline(row) ? "" : interval(row.difference, differenceText)),
    },
    { label: "pairs", cell: (row) => (isBaseline(row) ? "" : (row.difference?.count ?? 0)) },
  ];
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
              <DataTable class="grid compared" columns={columns} rows={compared} keyOf={({ run }) => run} />
            </Scroll>
            <p class="about">{EXPLANATIONS[by]} A difference is colored if its interval excludes 0.</p>
          </>
        )}
      </Loaded>
    </section>
  );
}

/** Meaning of the intervals, by unit of the pairs. */
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
  if (difference.low > 0) return "positive";
  return difference.high < 0 ? "negative" : undefined;
}

/** Table of the settings in which the runs differ. */
function SettingDifferences({ runs }: { readonly runs: readonly RunSummary[] }) {
  const choices = settingChoices(runs);
  const different = choices.filter(({ isDifferent }) => isDifferent);
  const columns: Column<SettingChoice>[] = [
    { label: "setting", isHead: true, cell: ({ name }) => name },
    ...runs.map((run) => ({ label: run.name, cell: ({ name }: SettingChoice) => breakable(settingOf(run, name) ?? "–") })),
  ];
  return (
    <section aria-labelledby="settings-title">
      <h2 id="settings-title">Different settings</h2>
      {different.length > 0 && (
        <Scroll label="Table of different settings">
          <DataTable class="grid compared texts" columns={columns} rows={different} keyOf={({ name }) => name} />
        </Scroll>
      )}
      <p class="about">
        {different.length === 0 ? "The runs have no different settings. " : ""}
        {`${count(choices.length - different.length, "setting is", "settings are")} equal in all runs.`}
      </p>
    </section>
  );
}

/** View of a run that compares the answers of two steps to the same scenarios. */
import { diffWordsWithSpace } from "diff";
import { useMemo, useState } from "preact/hooks";
import type { Page, RunComparison, ScenarioPair, StepSummary, TrajectoryAnswer } from "../../dashboard/api.ts";
import type { Split } from "../../../run/data.ts";
import type { DetailData, GroupData, ItemData } from "../../report/page-data.ts";
import { ToolCallView } from "../components/conversation.tsx";
import { Select, Pager } from "../components/controls.tsx";
import { count, rewardText, signClass, signed } from "../components/format.ts";
import { SplitChoice, StepChoice } from "../components/step-choice.tsx";
import { type Resource, useResource } from "./requests.ts";
import { go, goWith, href, type PageRoute } from "./router.ts";
import { differenceText, interval } from "./run-compare.tsx";
import { stepText } from "./run-groups.tsx";
import { Loaded, Problem } from "./status.tsx";

/** Scenarios of a page. */
const PAGE_PAIRS = 100;

/**
 * Answers of two steps, `a` and `b` of the address, to the same scenarios, with their differences marked. Shows the first and the last step
 * by default.
 */
export function RunAnswers({
  run,
  steps,
  route,
}: {
  readonly run: string;
  readonly steps: readonly StepSummary[];
  readonly route: PageRoute;
}) {
  const split = splitOf(steps, route);
  const splitSteps = steps.filter((each) => each.split === split);
  const stepOf = (name: string) => splitSteps.find(({ step }) => `${step}` === route.query.get(name));
  const [a, b] = [stepOf("a") ?? splitSteps[0], stepOf("b") ?? splitSteps.at(-1)];
  const [offset, setOffset] = useState(0);
  const base = `/ui/api/runs/${encodeURIComponent(run)}`;
  const query = a && b && `a=${a.step}&b=${b.step}&split=${split}&offset=${offset}&limit=${PAGE_PAIRS}`;
  const pairs = useResource<Page<ScenarioPair>>(query ? `${base}/compare?${query}` : null);
  const isPaired = split === "eval" && a !== undefined && b !== undefined && a !== b;
  const comparison = useResource<RunComparison>(isPaired ? `/ui/api/compare?run=${run}@${a.step}&run=${run}@${b.step}` : null);
  const setQuery = (values: Readonly<Record<string, string | number>>) => goWith(route, ["runs", run, "answers"], values);
  if (a === undefined || b === undefined || splitSteps.length < 2) {
    return <p class="empty">Two steps with trajectories are needed to compare answers; this run has {splitSteps.length}.</p>;
  }
  const items = pairs.value?.items ?? [];
  const chosen =
    items.find(({ scenario }) => scenario === route.query.get("scenario")) ??
    items.find(({ difference }) => difference !== null && difference !== 0) ??
    items[0];
  const splits = [...new Set(steps.map((each) => each.split))];
  return (
    <section id="answers" aria-labelledby="answers-title">
      <div class="bar">
        <h2 id="answers-title">Answers of two steps</h2>
        <div class="controls">
          {splits.length > 1 && (
            <SplitChoice
              splits={splits}
              name="answers-split"
              value={split}
              onChange={(value) => go(href(["runs", run, "answers"], { split: value }), { isReplaced: true })}
            />
          )}
          <span class="pair-steps">
            <StepChoice steps={splitSteps} step={a} label="First step" about={stepText} onChange={({ step }) => setQuery({ a: step })} />
            <span aria-hidden="true">→</span>
            <StepChoice steps={splitSteps} step={b} label="Second step" about={stepText} onChange={({ step }) => setQuery({ b: step })} />
          </span>
        </div>
      </div>
      {isPaired && <MeanDifference comparison={comparison.value} />}
      <Loaded resource={pairs} what="answers">
        {({ total }) => (
          <div class="split narrow">
            <div class="split-list">
              <PairList items={items} chosen={chosen} onChoose={(scenario) => setQuery({ scenario })} />
              <Pager
                label="Pages of scenarios"
                earlier="Earlier"
                later="Later"
                total={total}
                offset={offset}
                size={PAGE_PAIRS}
                onChange={setOffset}
              />
            </div>
            <div class="split-detail">
              {chosen && (
                <Pair
                  key={`${a.step} ${b.step} ${chosen.scenario}`}
                  base={`${base}/steps/${split}`}
                  steps={[a.step, b.step]}
                  pair={chosen}
                />
              )}
            </div>
          </div>
        )}
      </Loaded>
    </section>
  );
}

/** Returns the split that the address names; without one, evaluations if two of them can be compared. */
function splitOf(steps: readonly StepSummary[], { query }: PageRoute): Split {
  const chosen = query.get("split");
  if (chosen === "train" || chosen === "eval") return chosen;
  return steps.filter(({ split }) => split === "eval").length > 1 ? "eval" : "train";
}

/** Mean difference of the rewards of two evaluations, with its interval. */
function MeanDifference({ comparison }: { readonly comparison: RunComparison | undefined }) {
  const difference = comparison?.runs[1]?.difference;
  if (!difference) return null;
  return (
    <p class="about">
      {`Mean difference of the rewards ${differenceText(difference.mean)}, 95 % interval ${interval(difference, differenceText)}, paired over ${count(difference.count, "scenario")}.`}
    </p>
  );
}

/** Properties of {@link PairList}. */
interface PairListProps {
  readonly items: readonly ScenarioPair[];
  readonly chosen: ScenarioPair | undefined;
  readonly onChoose: (scenario: string) => void;
}

/** Scenarios with the rewards of both steps. */
function PairList({ items, chosen, onChoose }: PairListProps) {
  const meanText = (group: GroupData | null) => (typeof group?.mean === "number" ? rewardText(group.mean) : "–");
  return (
    <ul class="pair-list" aria-label="Scenarios">
      {items.map(({ scenario, a, b, difference }) => (
        <li key={scenario}>
          <button type="button" aria-pressed={scenario === chosen?.scenario} onClick={() => onChoose(scenario)}>
            <span class="name">{scenario}</span>
            <span class="num">
              <span class="hidden">reward </span>
              {`${meanText(a)} → ${meanText(b)}`}
            </span>
            <span class={`num ${signClass(difference ?? 0) ?? ""}`}>{difference === null ? "" : signed(difference)}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

/** Two answers to a scenario side by side, turn by turn. */
function Pair({ base, steps, pair }: { readonly base: string; readonly steps: readonly [number, number]; readonly pair: ScenarioPair }) {
  /** Index of the compared trajectories in their groups; a shorter group shows its last one. */
  const [index, setIndex] = useState(0);
  const path = (group: GroupData | null, step: number) => {
    const groupIndex = Math.min(index, (group?.trajectories.length ?? 0) - 1);
    return group === null || groupIndex < 0 ? null : `${base}/${step}/trajectories/${group.line}/${groupIndex}`;
  };
  const sides = [useResource<TrajectoryAnswer>(path(pair.a, steps[0])), useResource<TrajectoryAnswer>(path(pair.b, steps[1]))] as const;
  const maxTrajectories = Math.max(pair.a?.trajectories.length ?? 0, pair.b?.trajectories.length ?? 0);
  const indices = Array.from({ length: maxTrajectories }, (_, at) => ({ value: `${at}`, label: `${at}` }));
  const [a, b] = [sides[0].value?.trajectory.detail, sides[1].value?.trajectory.detail];
  const turns = useMemo(() => (a && b ? pairTurns(a, b) : []), [a, b]);
  const isContext = ({ sampled, role }: ItemData) => sampled === null && (role === "user" || role === "system");
  const context = (a ?? b)?.histories[0]?.filter(isContext) ?? [];
  return (
    <article class="pair" aria-label={`Answers to ${pair.scenario}`}>
      <div class="bar">
        <h3>{pair.scenario}</h3>
        {maxTrajectories > 1 && (
          <label class="control">
            <span>Trajectory</span>
            <Select options={indices} value={`${index}`} onChange={(value) => setIndex(Number(value))} />
          </label>
        )}
      </div>
      {context.length > 0 && (
        <dl class="pair-context">
          {context.map((item, at) => (
            <div key={at}>
              <dt>{item.role}</dt>
              <dd class="text">{item.text}</dd>
            </div>
          ))}
        </dl>
      )}
      <div class="pair-head">
        {sides.map((side, at) => (
          <SideHead key={at} side={side} step={steps[at] ?? 0} isAbsent={(at === 0 ? pair.a : pair.b) === null} />
        ))}
      </div>
      {turns.map((turn, at) => (
        <div key={at} class="pair-turn">
          <Side item={turn.a} parts={turn.removed} mark="del" label={`Turn ${at + 1} at step ${steps[0]}`} step={steps[0]} />
          <Side item={turn.b} parts={turn.added} mark="ins" label={`Turn ${at + 1} at step ${steps[1]}`} step={steps[1]} />
        </div>
      ))}
    </article>
  );
}

/** Properties of {@link SideHead}. */
interface SideHeadProps {
  readonly side: Resource<TrajectoryAnswer>;
  readonly step: number;
  readonly isAbsent: boolean;
}

/** Step, reward and length of one answer. */
function SideHead({ side, step, isAbsent }: SideHeadProps) {
  return (
    <div>
      <b>{`Step ${step}`}</b>
      {isAbsent && <small>no rollout of this scenario</small>}
      {side.error && <Problem error={side.error} />}
      {side.value && <small>{`reward ${rewardText(side.value.trajectory.reward)} · ${side.value.trajectory.tokens} tokens`}</small>}
    </div>
  );
}

/** Part of a text; marked if the other text lacks it. */
interface Part {
  readonly text: string;
  readonly isMarked: boolean;
}

/** Turns of both answers at one position. */
interface TurnPair {
  readonly a: ItemData | undefined;
  readonly b: ItemData | undefined;
  /** Text of `a`, with the parts marked that `b` lacks. */
  readonly removed: readonly Part[];
  /** Text of `b`, with the parts marked that `a` lacks. */
  readonly added: readonly Part[];
}

/** Pairs the sampled turns and tool results of two conversations by position, and compares their texts word by word. */
function pairTurns(a: DetailData, b: DetailData): readonly TurnPair[] {
  const answersOf = ({ histories }: DetailData) => histories.flat().filter(({ sampled, role }) => sampled !== null || role === "tool");
  const [answersA, answersB] = [answersOf(a), answersOf(b)];
  return Array.from({ length: Math.max(answersA.length, answersB.length) }, (_, turn) => {
    const [turnA, turnB] = [answersA[turn], answersB[turn]];
    const parts = diffWordsWithSpace(textOf(turnA), textOf(turnB));
    return {
      a: turnA,
      b: turnB,
      removed: parts.filter(({ added }) => !added).map(({ value, removed }) => ({ text: value, isMarked: removed })),
      added: parts.filter(({ removed }) => !removed).map(({ value, added }) => ({ text: value, isMarked: added })),
    };
  });
}

/** Returns the text of a turn to compare: reasoning, then text. */
function textOf(item: ItemData | undefined): string {
  if (item === undefined) return "";
  return [item.reasoning, item.text].filter(Boolean).join("\n");
}

/** Properties of {@link Side}. */
interface SideProps {
  readonly item: ItemData | undefined;
  readonly parts: readonly Part[];
  readonly mark: "del" | "ins";
  readonly label: string;
  readonly step: number;
}

/** Turn of one answer, with the parts marked that the other answer lacks. */
function Side({ item, parts, mark: Mark, label, step }: SideProps) {
  if (item === undefined) return <div class="side absent">No turn.</div>;
  return (
    <div class="side" role="group" aria-label={label}>
      <small>{`${item.role} · step ${step}`}</small>
      <div class={item.role === "tool" ? "text code" : "text"}>
        {parts.map(({ text, isMarked }, at) => (isMarked ? <Mark key={at}>{text}</Mark> : text))}
      </div>
      {item.calls.map((call, at) => (
        <ToolCallView key={at} call={call} />
      ))}
    </div>
  );
}

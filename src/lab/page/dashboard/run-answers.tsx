import { diffWordsWithSpace } from "diff";
import { useMemo, useState } from "preact/hooks";
import type { Page, RunComparison, ScenarioPair, StepSummary, TrajectoryAnswer } from "../../dashboard/api.ts";
import type { DetailData, GroupData, ItemData } from "../../report/page-data.ts";
import { ToolCallView } from "../components/conversation.tsx";
import { Select, Pager } from "../components/controls.tsx";
import { count, rewardText, signed } from "../components/format.ts";
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
  const wanted = route.query.get("split");
  const hasEvaluations = steps.filter(({ split }) => split === "eval").length > 1;
  const split = wanted === "train" || wanted === "eval" ? wanted : hasEvaluations ? "eval" : "train";
  const own = steps.filter((each) => each.split === split);
  const stepOf = (name: string) => own.find(({ step }) => `${step}` === route.query.get(name));
  const [a, b] = [stepOf("a") ?? own[0], stepOf("b") ?? own.at(-1)];
  const [offset, setOffset] = useState(0);
  const base = `/ui/api/runs/${encodeURIComponent(run)}`;
  const query = a && b && `a=${a.step}&b=${b.step}&split=${split}&offset=${offset}&limit=${PAGE_PAIRS}`;
  const pairs = useResource<Page<ScenarioPair>>(query ? `${base}/compare?${query}` : null);
  const isPaired = split === "eval" && a !== undefined && b !== undefined && a !== b;
  const compared = useResource<RunComparison>(isPaired ? `/ui/api/compare?run=${run}@${a.step}&run=${run}@${b.step}` : null);
  const setQuery = (values: Readonly<Record<string, string | number>>) => goWith(route, ["runs", run, "answers"], values);
  if (a === undefined || b === undefined || own.length < 2) {
    return <p class="empty">Two steps with trajectories are needed to compare answers; this run has {own.length}.</p>;
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
            <StepChoice steps={own} step={a} label="First step" about={stepText} onChange={({ step }) => setQuery({ a: step })} />
            <span aria-hidden="true">→</span>
            <StepChoice steps={own} step={b} label="Second step" about={stepText} onChange={({ step }) => setQuery({ b: step })} />
          </span>
        </div>
      </div>
      {isPaired && <MeanDifference comparison={compared.value} />}
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

interface PairListProps {
  readonly items: readonly ScenarioPair[];
  readonly chosen: ScenarioPair | undefined;
  readonly onChoose: (scenario: string) => void;
}

/** Scenarios with the rewards of both steps. */
function PairList({ items, chosen, onChoose }: PairListProps) {
  const reward = (group: GroupData | null) => (group?.mean === null || group?.mean === undefined ? "–" : rewardText(group.mean));
  return (
    <ul class="pair-list" aria-label="Scenarios">
      {items.map(({ scenario, a, b, difference }) => (
        <li key={scenario}>
          <button type="button" aria-pressed={scenario === chosen?.scenario} onClick={() => onChoose(scenario)}>
            <span class="name">{scenario}</span>
            <span class="num">
              <span class="hidden">reward </span>
              {`${reward(a)} → ${reward(b)}`}
            </span>
            <span class={`num ${difference === null || difference === 0 ? "" : difference < 0 ? "negative" : "positive"}`}>
              {difference === null ? "" : signed(difference)}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}

/** Two answers to a scenario side by side, turn by turn. */
function Pair({ base, steps, pair }: { readonly base: string; readonly steps: readonly [number, number]; readonly pair: ScenarioPair }) {
  const [index, setIndex] = useState(0);
  const path = (group: GroupData | null, step: number) => {
    const at = Math.min(index, (group?.trajectories.length ?? 0) - 1);
    return group === null || at < 0 ? null : `${base}/${step}/trajectories/${group.line}/${at}`;
  };
  const sides = [useResource<TrajectoryAnswer>(path(pair.a, steps[0])), useResource<TrajectoryAnswer>(path(pair.b, steps[1]))] as const;
  const maxTrajectories = Math.max(pair.a?.trajectories.length ?? 0, pair.b?.trajectories.length ?? 0);
  const indices = Array.from({ length: maxTrajectories }, (_, at) => ({ value: `${at}`, label: `${at}` }));
  const [a, b] = [sides[0].value?.trajectory.detail, sides[1].value?.trajectory.detail];
  const turns = useMemo(() => (a && b ? pairTurns(a, b) : []), [a, b]);
  const context = (a ?? b)?.histories[0]?.filter(({ sampled, role }) => sampled === null && (role === "user" || role === "system")) ?? [];
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
  readonly removed: readonly Part[];
  readonly added: readonly Part[];
}

/** Pairs the sampled turns and tool results of two conversations by position, and compares their texts word by word. */
function pairTurns(a: DetailData, b: DetailData): readonly TurnPair[] {
  const answersOf = ({ histories }: DetailData) => histories.flat().filter(({ sampled, role }) => sampled !== null || role === "tool");
  const [first, second] = [answersOf(a), answersOf(b)];
  return Array.from({ length: Math.max(first.length, second.length) }, (_, at) => {
    const [x, y] = [first[at], second[at]];
    const parts = diffWordsWithSpace(textOf(x), textOf(y));
    return {
      a: x,
      b: y,
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

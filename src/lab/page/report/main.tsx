/** Entry of the report's script: the page of one run, drawn from the data in the page. */
import { render } from "preact";
import { useMemo } from "preact/hooks";
import type { PageData } from "../../report/page-data.ts";
import { Curves } from "../components/curves.tsx";
import { Numbers } from "../components/headline.tsx";
import { RunFacts } from "../components/run-facts.tsx";
import { ThemeControl } from "../components/theme.tsx";
import { GroupsSection } from "./groups-section.tsx";
import { TrajectorySection } from "./trajectory-section.tsx";
import { nearestStep, showStep, useView } from "./view.ts";

/** Titles of the sections by the id of their element. */
const SECTIONS = Object.entries({ curves: "Curves", groups: "Groups", trajectory: "Trajectory", facts: "Run" });

/** Page of a run: curves, groups of the current step, current trajectory, facts. */
function Report({ data }: { readonly data: PageData }) {
  const view = useView(data.steps);
  const step = data.steps[view.step];
  const runs = useMemo(() => [{ name: data.title, metrics: data.metrics }], [data]);
  /** Shows the step with trajectories that is nearest to a step of the curves. */
  const showNearest = (stepNumber: number) => {
    const nearest = nearestStep(data.steps, stepNumber, step?.split ?? "train");
    if (nearest !== undefined) showStep(nearest);
  };
  const written = ["Page written", `${data.written.slice(0, 19).replace("T", " ")} UTC`] as const;
  return (
    <>
      <Top data={data} />
      <main>
        <Curves runs={runs} mark={step?.step ?? null} onPick={showNearest} />
        <GroupsSection data={data} view={view} />
        <TrajectorySection data={data} view={view} />
        <RunFacts {...data} facts={[...data.facts, written]} />
      </main>
    </>
  );
}

/** Title, navigation and main numbers of the run. */
function Top({ data }: { readonly data: PageData }) {
  const model = data.facts.find(([name]) => name === "Model")?.[1];
  return (
    <header class="top">
      <div class="bar">
        <div>
          <p class="eyebrow">Training run{model !== undefined && ` · ${model}`}</p>
          <h1>{data.title}</h1>
        </div>
        <div class="controls">
          <nav aria-label="Sections">
            {SECTIONS.map(([id, label]) => (
              <button key={id} type="button" class="link" onClick={() => jump(id)}>
                {label}
              </button>
            ))}
          </nav>
          <ThemeControl />
        </div>
      </div>
      <Numbers metrics={data.metrics} checkpoints={data.checkpoints} />
    </header>
  );
}

/** Scrolls to a section. A link cannot: the part of the address after `#` names the trajectory that is shown. */
function jump(id: string): void {
  const section = document.getElementById(id);
  section?.scrollIntoView({ block: "start" });
  const heading = section?.querySelector("h2");
  heading?.setAttribute("tabindex", "-1");
  heading?.focus({ preventScroll: true });
}

// `report/html.ts` writes both elements.
const source = document.getElementById("data")!;
const page = document.getElementById("page")!;
render(<Report data={JSON.parse(source.textContent) as PageData} />, page);
document.documentElement.dataset["ready"] = "";

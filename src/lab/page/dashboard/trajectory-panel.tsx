/** Trajectory of a run, fetched from the service. */
import { useState } from "preact/hooks";
import type { TrajectoryAnswer } from "../../dashboard/api.ts";
import type { Split } from "../../../run/data.ts";
import { type Coloring, COLORINGS } from "../components/coloring.ts";
import { Conversation } from "../components/conversation.tsx";
import { ColoringControl, Siblings, TrajectoryFacts, usableColoring } from "../components/trajectory.tsx";
import { useResource } from "./requests.ts";
import { Loaded } from "./status.tsx";

/** Address of a trajectory within a run. */
export interface TrajectoryPlace {
  readonly split: Split;
  readonly step: number;
  /** Line of the group in the file of the step, from 1. */
  readonly line: number;
  /** Index of the trajectory in its group. */
  readonly index: number;
}

/** Parses a place from parts of an address: `train/12/3/0`; null if they name none. */
export function placeOf([split, step, line, index]: readonly (string | undefined)[]): TrajectoryPlace | null {
  if (split !== "train" && split !== "eval") return null;
  const numbers = [step, line, index].map((part) => (part === undefined || part === "" ? NaN : Number(part)));
  if (!numbers.every(Number.isInteger)) return null;
  const [stepNumber = 0, lineNumber = 0, indexNumber = 0] = numbers;
  return { split, step: stepNumber, line: lineNumber, index: indexNumber };
}

/** Properties of {@link TrajectoryPanel}. */
interface TrajectoryPanelProps {
  readonly run: string;
  readonly place: TrajectoryPlace;
  readonly onOpen: (index: number) => void;
}

/** Trajectory token by token with its facts, fetched from the service. */
export function TrajectoryPanel({ run, place, onOpen }: TrajectoryPanelProps) {
  const { split, step, line, index } = place;
  const path = `/ui/api/runs/${encodeURIComponent(run)}/steps/${split}/${step}/trajectories/${line}/${index}`;
  const answer = useResource<TrajectoryAnswer>(path);
  const [chosenColoring, setChosenColoring] = useState<Coloring>(COLORINGS[0]);
  const detail = answer.value?.trajectory.detail ?? null;
  const coloring = usableColoring(chosenColoring, detail);
  return (
    <section id="trajectory" aria-labelledby="trajectory-title">
      <div class="bar">
        <h2 id="trajectory-title" tabIndex={-1}>
          Trajectory <span class="which">{`${answer.value?.group.id ?? ""} · ${split} step ${step} · ${index}`}</span>
        </h2>
        <div class="controls">{detail && <ColoringControl detail={detail} coloring={coloring} onChange={setChosenColoring} />}</div>
      </div>
      <Loaded resource={answer} what="trajectory">
        {({ group, trajectory }) => (
          <>
            <Siblings trajectories={group.trajectories} shown={index} onOpen={onOpen} />
            <div class="reader">
              {trajectory.detail && (
                <Conversation
                  key={path}
                  detail={trajectory.detail}
                  advantage={trajectory.advantage}
                  coloring={coloring}
                  isTraining={split === "train"}
                />
              )}
              <TrajectoryFacts group={group} trajectory={trajectory} />
            </div>
          </>
        )}
      </Loaded>
    </section>
  );
}

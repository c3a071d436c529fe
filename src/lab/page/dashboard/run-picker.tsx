/** Choice of runs that a view shows together with its own run. */
import { Select } from "../components/controls.tsx";
import { rewardText } from "../components/format.ts";
import { runColor } from "../components/series.ts";
import { addedRuns } from "./added-runs.ts";
import type { Live } from "./live.ts";
import { goWith, type PageRoute } from "./router.ts";

/** Properties of {@link RunPicker}. */
interface RunPickerProps {
  /** Id of the run that the page is about. */
  readonly run: string;
  readonly route: PageRoute;
  readonly live: Live;
  /** Label of the select, such as `Compare with another run`. */
  readonly label: string;
}

/** Picker of the runs that the page shows together with its own; the address names them. */
export function RunPicker({ run, route, live: { runs = [] }, label }: RunPickerProps) {
  const chosen = addedRuns(route.query, run).filter((id) => runs.some((each) => each.id === id));
  const others = runs.filter(({ id }) => id !== run);
  const options = others
    .filter(({ id }) => !chosen.includes(id))
    .map(({ id, name, reward }) => ({ value: id, label: reward === null ? name : `${name} · ${rewardText(reward)}` }));
  const setChosen = (ids: readonly string[]) => goWith(route, route.path, { with: ids.join(",") });
  const summaryOf = (id: string) => runs.find((each) => each.id === id);
  if (others.length === 0) return null;
  return (
    <div class="overlay">
      {chosen.length > 0 &&
        [run, ...chosen].map((id, index) => (
          <span key={id} class="chip">
            <i class="swatch" style={{ color: `var(--${runColor(index)})` }} />
            {summaryOf(id)?.name ?? id}
            {id !== run && (
              <button
                type="button"
                aria-label={`Remove ${summaryOf(id)?.name ?? id}`}
                onClick={() => setChosen(chosen.filter((each) => each !== id))}
              >
                ×
              </button>
            )}
          </span>
        ))}
      {/* The option without a value is the placeholder. */}
      <Select
        label={label}
        options={[{ value: "", label: `${label} …` }, ...options]}
        value=""
        onChange={(id) => setChosen([...chosen, id])}
      />
    </div>
  );
}

import { Choice } from "../components/controls.tsx";
import { rewardText } from "../components/format.ts";
import { runColor } from "../components/series.ts";
import type { Live } from "./live.ts";
import { goWith, type Route } from "./router.ts";

interface OverlayProps {
  readonly run: string;
  readonly route: Route;
  readonly live: Live;
  /** Text of the choice of a further run. */
  readonly label: string;
}

/** Choice of the runs that are shown together with this one; the address names them. */
export function Overlay({ run, route, live: { runs = [], metrics = [] }, label }: OverlayProps) {
  const chosen = metrics.map((each) => each.run).filter((id) => id !== run);
  const others = runs.filter(({ id }) => id !== run);
  const options = others.flatMap(({ id, name, reward }) =>
    chosen.includes(id) ? [] : [{ value: id, label: `${name}${reward === null ? "" : ` · ${rewardText(reward)}`}` }],
  );
  const set = (ids: readonly string[]) => goWith(route, route.path, { with: ids.join(",") });
  const summaryOf = (id: string) => runs.find((each) => each.id === id);
  if (others.length === 0) return null;
  return (
    <div class="overlay">
      {chosen.length > 0 &&
        [run, ...chosen].map((id, at) => (
          <span key={id} class="chip">
            <i class="swatch" style={{ color: `var(--${runColor(at)})` }} />
            {summaryOf(id)?.name ?? id}
            {id !== run && (
              <button
                type="button"
                aria-label={`Remove ${summaryOf(id)?.name ?? id}`}
                onClick={() => set(chosen.filter((each) => each !== id))}
              >
                ×
              </button>
            )}
          </span>
        ))}
      <Choice label={label} options={[{ value: "", label: `${label} …` }, ...options]} value="" onChange={(id) => set([...chosen, id])} />
    </div>
  );
}

/** Entry of the dashboard's script: the page of the place that the address names. */
import { render } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { addedRuns } from "./added-runs.ts";
import { JobsPage } from "./jobs-page.tsx";
import { KeysPage } from "./keys-page.tsx";
import { useLive } from "./live.ts";
import { ModelsPage } from "./models-page.tsx";
import { PlaygroundPage } from "./playground-page.tsx";
import { go, href, type PageRoute, useRoute } from "./router.ts";
import { RunPage } from "./run-page.tsx";
import { RunsPage } from "./runs-page.tsx";
import { isPlace, Shell } from "./shell.tsx";
import { UnknownPage } from "./unknown-page.tsx";

/** Returns the ids of the runs whose metrics the place shows. */
function followedRuns(route: PageRoute): readonly string[] {
  const [place, run] = route.path;
  if (place !== "runs" || run === undefined) return [];
  return [run, ...addedRuns(route.query, run)];
}

/** Page of the place that the address names. */
function Dashboard() {
  const route = useRoute();
  const [place = "runs", run] = route.path;
  const key = followedRuns(route).join(" ");
  const followed = useMemo(() => key.split(" ").filter(Boolean), [key]);
  const live = useLive(followed);
  useEffect(() => {
    if (route.path.length === 0) go(href(["runs"]), { isReplaced: true });
  }, [route]);
  useEffect(() => {
    const runName = live.runs?.find(({ id }) => id === run)?.name;
    const placeName = place.slice(0, 1).toUpperCase() + place.slice(1);
    document.title = `${runName ?? placeName} · Whetstone`;
  }, [place, run, live.runs]);
  return (
    <Shell place={place} connection={live.connection} hasData={live.runs !== undefined}>
      {place === "runs" && run === undefined && <RunsPage runs={live.runs} route={route} />}
      {place === "runs" && run !== undefined && <RunPage key={run} run={run} route={route} live={live} />}
      {place === "jobs" && <JobsPage />}
      {place === "models" && <ModelsPage runs={live.runs} route={route} />}
      {place === "playground" && <PlaygroundPage route={route} />}
      {place === "keys" && <KeysPage />}
      {!isPlace(place) && <UnknownPage address={location.hash} />}
    </Shell>
  );
}

// The server's page, `dashboard/html.ts`, has the element.
render(<Dashboard />, document.getElementById("page")!);
document.documentElement.dataset["ready"] = "";

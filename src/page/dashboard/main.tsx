import { render } from "preact";
import type { RunSummary } from "../../dashboard/api.ts";

function RunList({ runs }: { readonly runs: readonly RunSummary[] }) {
  return (
    <ul>
      {runs.map(({ id, name, state, steps, reward }) => (
        <li key={id}>
          {name}: {state}, {steps} steps, reward {reward}
        </li>
      ))}
    </ul>
  );
}

const answer = await fetch("api/runs");
const page = document.getElementById("page");
if (page !== null) render(<RunList runs={(await answer.json()) as RunSummary[]} />, page);

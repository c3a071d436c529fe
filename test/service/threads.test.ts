import { expect, test } from "vitest";
import { threadMetrics } from "../../src/service/jobs/threads.ts";
import { jobMetrics } from "../../src/train/metrics.ts";
import { read } from "../project/files.ts";

const threads = {
  threads: 2,
  rates: [
    { threads: 1, tokensPerSecond: 900 },
    { threads: 2, tokensPerSecond: 1600.5 },
  ],
};

test("what an engine says of its threads becomes metrics, each of them documented; one that says nothing has none", () => {
  const metrics = threadMetrics({ threads });
  expect(metrics).toEqual({ "engine/threads": 2, "engine/threads_1_tokens_per_second": 900, "engine/threads_2_tokens_per_second": 1600.5 });
  const page = read("docs/reference/metrics.md");
  for (const key of Object.keys(metrics)) expect(page).toContain(`\`${key.replace(/_\d_/u, "_<n>_")}\``);
  expect(threadMetrics({})).toEqual({});
});

test("in a run's row they are among what differs from run to run", () => {
  const names = Object.keys(jobMetrics({ loss: 1, ...threadMetrics({ threads }) }));
  expect(names.filter((name) => !name.startsWith("time/"))).toEqual(["loss"]);
  expect(names).toContain("time/engine/threads");
});

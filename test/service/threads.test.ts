import { expect, test } from "vitest";
import { threadMetrics } from "../../src/service/jobs/metrics.ts";
import { jobMetrics } from "../../src/training/train/metrics.ts";
import { read } from "../project/files.ts";

const threads = {
  threads: 2,
  rates: [
    { threads: 1, tokensPerSecond: 900 },
    { threads: 2, tokensPerSecond: 1600.5 },
  ],
};

test("converts an engine's thread report to documented metrics, and no report to none", () => {
  const metrics = threadMetrics({ threads });
  expect(metrics).toEqual({ "engine/threads": 2, "engine/threads_1_tokens_per_second": 900, "engine/threads_2_tokens_per_second": 1600.5 });
  const page = read("docs/reference/metrics.md");
  for (const key of Object.keys(metrics)) expect(page).toContain(`\`${key.replace(/_\d_/u, "_<n>_")}\``);
  expect(threadMetrics({})).toEqual({});
});

test("lists thread metrics under time/ in a run's row", () => {
  const names = Object.keys(jobMetrics({ loss: 1, ...threadMetrics({ threads }) }));
  expect(names.filter((name) => !name.startsWith("time/"))).toEqual(["loss"]);
  expect(names).toContain("time/engine/threads");
});

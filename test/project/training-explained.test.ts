import { expect, it } from "vitest";
import * as learner from "../../src/learner/index.ts";
import { rlConfig, sftConfig, sftExperimentalConfig } from "../../src/schema/index.ts";
import { read } from "./files.ts";

const page = read("docs/explanation/training.md");
const named = new Set([...page.matchAll(/`([\w/]+)(?:: [^`]*)?`/gu)].map((match) => match[1] ?? ""));
const settings = page.split("## Every setting, and where it acts")[1]?.split("\n## ")[0] ?? "";

it.each([
  ["an RL job", Object.keys(rlConfig.shape)],
  ["an SFT job", [...Object.keys(sftConfig.shape), ...Object.keys(sftExperimentalConfig.shape)]],
])("explains where every setting of %s acts", (_, keys) => {
  const listed = new Set([...settings.matchAll(/`(\w+)`/gu)].map((match) => match[1]));
  expect(keys.filter((key) => !listed.has(key))).toEqual([]);
});

it("has a formula for every diagnostic of a step", () => {
  const diagnostics = [
    ...["loss", "grad_norm", "reward/mean", "reward/std", "advantage/mean", "advantage/std", "advantage/zero_groups", "policy/entropy"],
    ...["policy/kl_k1", "policy/kl_k3", "policy/ratio_p99", "policy/clip_fraction", "policy/ess", "sampler/mismatch_kl"],
    ...["tokens/trained", "tokens/dropped", "tokens/padding_share", "staleness/mean", "staleness/max"],
    ...["data/merged_turns", "data/drifted_turns"],
  ];
  expect(diagnostics.filter((name) => !named.has(name))).toEqual([]);
});

it("names functions that there are", () => {
  // Those of the learner that are not for other rooms stand in files of their names.
  const inner = new Set(["readTrajectory", "renderTurn"]);
  const functions = [...settings.matchAll(/`([a-z]+(?:[A-Z]\w*)+)`/gu)].map((match) => match[1] ?? "");
  expect(functions.length).toBeGreaterThan(5);
  expect(functions.filter((name) => !(name in learner) && !inner.has(name))).toEqual([]);
});

/**
 * Relative judge: a small model learns from a judge that compares its attempts, on one machine.
 *
 *   npx tsx --conditions=whetstone/source recipes/relative-judge/main.ts [--seed N] [--shuffle-scores] [--steps N] [--run-dir DIR] [--json]
 *
 * With JUDGE_URL and JUDGE_MODEL (and JUDGE_API_KEY), a language model judges instead of the script.
 */
import { judgeEndpoint, type JudgeModel } from "whetstone/judge";
import { recipeMain } from "../shared/recipe-main.ts";
import { defaults } from "./config.ts";
import { judgedEnvironment } from "./environment.ts";
import { scriptedJudge } from "./judge.ts";

const SHUFFLE = "shuffle-scores";

recipeMain({
  name: "relative-judge",
  defaults,
  flags: { [SHUFFLE]: "permute the judge's scores within each group: a control, in which the model must not learn" },
  recipeFor: ({ seed, heldOut }, flags) => ({
    environment: judgedEnvironment(seed, heldOut, flags.has(SHUFFLE) ? scriptedJudge(true) : judge()),
    exact: "quality",
    validation: [],
    example: () => {
      throw new Error("This recipe has no examples: leave out --sft-jobs");
    },
  }),
});

function judge(): JudgeModel {
  const { JUDGE_URL: baseUrl, JUDGE_MODEL: model, JUDGE_API_KEY: apiKey } = process.env;
  if (baseUrl === undefined || model === undefined) return scriptedJudge();
  return judgeEndpoint({ baseUrl, model, apiKey });
}

import type { OpenAI } from "openai";
import { expectTypeOf, it } from "vitest";
import type { GraderRun, MultiGrader, ScoreModelGrader, StringCheckGrader, TextMetric } from "../../src/graders/index.ts";

type Official = OpenAI.Graders.ScoreModelGrader;

it("answers with the type of OpenAI's client", () => {
  expectTypeOf<GraderRun>().toExtend<OpenAI.FineTuning.Alpha.Graders.GraderRunResponse>();
});

it("accepts graders of OpenAI's types, except for images, audio and the metric `cosine`", () => {
  expectTypeOf<StringCheckGrader>().toEqualTypeOf<OpenAI.Graders.StringCheckGrader>();
  expectTypeOf<TextMetric | "cosine">().toEqualTypeOf<OpenAI.Graders.TextSimilarityGrader["evaluation_metric"]>();
  expectTypeOf<Omit<Official, "input">>().toExtend<Omit<ScoreModelGrader, "input">>();
  expectTypeOf<Official["input"][number]["role"]>().toEqualTypeOf<ScoreModelGrader["input"][number]["role"]>();
  expectTypeOf<Omit<MultiGrader, "graders">>().toEqualTypeOf<Omit<OpenAI.Graders.MultiGrader, "graders">>();
});

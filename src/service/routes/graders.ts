/** The routes of graders, in the format of the OpenAI API. */
import {
  graderRun,
  runGraderRequest,
  validatedGrader,
  validateGraderRequest,
  type GraderRun,
  type ValidatedGrader,
} from "../../base/schema/index.ts";
import { checkGrader, parseGrader } from "../../graders/check.ts";
import { runGraderWith } from "../../graders/run.ts";
import { completeWith } from "../dialects/complete.ts";
import type { DialectContext } from "../dialects/handler.ts";
import { readJson } from "../http/body.ts";
import { principalOf } from "../http/principal.ts";
import type { Route } from "../openapi/route.ts";
import type { ServiceWork } from "./context.ts";

const PATH = "/v1/fine_tuning/alpha/graders";
const common = { method: "POST", tag: "Fine-tuning", isExtension: true, validationStatus: 400 } as const;
/** Path of the grader in a request. */
const GRADER_PATH = ["grader"];

/** Creates the routes that run and check graders. Graders that ask a model sample it with the rights of the caller. */
export function graderRoutes(context: DialectContext, { bodies, graders }: Pick<ServiceWork, "bodies" | "graders">): Route[] {
  return [
    {
      ...common,
      path: `${PATH}/run`,
      id: "runGrader",
      access: ["train", "sample"],
      summary: "Score a sample with a grader",
      description: "A failure of the grader is part of the answer, in `metadata.errors`, with the reward 0.",
      body: runGraderRequest,
      answer: graderRun,
      handle: async (c) => {
        const { value } = await readJson(c, "graderRun", bodies);
        const grader = parseGrader(value.grader, GRADER_PATH);
        const complete = completeWith(context, principalOf(c));
        const input = { item: value.item, sample: { output_text: value.model_sample } };
        const options = { complete, similarity: graders.similarity, signal: c.req.raw.signal };
        return c.json((await runGraderWith(grader, input, options)) satisfies GraderRun);
      },
    },
    {
      ...common,
      path: `${PATH}/validate`,
      id: "validateGrader",
      access: ["train", "sample"],
      summary: "Check a grader without running it",
      body: validateGraderRequest,
      answer: validatedGrader,
      handle: async (c) => {
        const { value } = await readJson(c, "graderCheck", bodies);
        return c.json({ grader: checkGrader(value.grader, { at: GRADER_PATH }) } satisfies ValidatedGrader);
      },
    },
  ];
}

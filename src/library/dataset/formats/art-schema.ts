/** Schema of the exchanges in trajectories of ART: requests and answers of four APIs. */
import { z } from "zod";
import { ANSWERS } from "../../../dialects/index.ts";

/** Returns the schema of the exchanges of one API. */
function exchanges<Answer extends z.ZodType>(answer: Answer) {
  const request = z.record(z.string(), z.unknown());
  const exchange = z.looseObject({ request, response: answer, model: z.string().nullish(), start_time: z.string(), end_time: z.string() });
  return z.array(exchange).default([]);
}

/** Schema of the member `exchanges` of a trajectory. */
export const artExchanges = z.looseObject({
  chat_completions: exchanges(ANSWERS.chat),
  completions: exchanges(ANSWERS.completions),
  responses: exchanges(ANSWERS.responses),
  messages: exchanges(ANSWERS.messages),
});
/** Exchanges of a trajectory by API. */
export type ArtExchanges = z.infer<typeof artExchanges>;

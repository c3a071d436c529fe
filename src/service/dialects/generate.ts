/** The dialect of token ids (`POST /inference/v1/generate`). */
import { toGenerateAnswer } from "../../dialects/generate/answer.ts";
import { singleAnswer, type Dialect } from "./dialect.ts";
import type { Opened, Translated } from "./translations.ts";

/** Dialect of vLLM's interface for token ids. */
export const generateDialect: Dialect<Opened<Translated<"generate">>, "generate"> = {
  name: "generate",
  open: ({ calls }) => ({ calls, answer: singleAnswer(toGenerateAnswer), shaper: null }),
};

/** Ready-made rewards that score the last text of a trajectory against the scenario's right answer. */
import type { ValidateFunction } from "ajv";
import { ConfigError } from "../../base/errors.ts";
import type { JsonObject } from "../../base/schema/index.ts";
import type { Reward } from "../../base/trajectory/scoring.ts";
import { numberIn } from "./number-in.ts";
import { reward } from "./reward.ts";
import { similarity } from "./similarity.ts";
import { messageOf, refuse } from "../../base/util/values.ts";

/** Options of the rewards that score the last text. */
export interface TextRewardOptions<S> {
  /** Name of the reward. @default the kind of reward, e.g. `"similarity"` */
  readonly name?: string | undefined;
  /** Returns the part of the text to score, e.g. the text between tags; null or undefined scores 0. @default the whole text */
  readonly extract?: ((text: string, scenario: S) => string | null | undefined) | undefined;
}

/** Options of {@link numericReward}. */
export interface NumericRewardOptions<S> extends TextRewardOptions<S> {
  /** Absolute tolerance, at least 0. @default 0 */
  readonly tolerance?: number | undefined;
  /** Relative tolerance, as a fraction of the larger of the two magnitudes, at least 0. @default 1e-9 */
  readonly relativeTolerance?: number | undefined;
  /** Position of the compared number among the numbers of the text. @default "last" */
  readonly which?: "first" | "last" | undefined;
}

/**
 * Creates a reward that scores the {@link similarity} of the text and the right answer, in [0, 1].
 *
 * @param answer - Returns the right answer of a scenario.
 * @param options - Name of the reward, and the part of the text to score.
 * @returns a reward of weight 1, named `similarity` by default.
 * @throws ConfigError `E_CONFIG` if `answer` is not a function.
 * @example
 * ```ts
 * similarityReward((scenario: { answer: string }) => scenario.answer);
 * ```
 */
export function similarityReward<S>(answer: (scenario: S) => string, options: TextRewardOptions<S> = {}): Reward<S> {
  checkFunction("similarityReward", answer);
  return textReward("similarity", options, (text, scenario) => similarity(text, answer(scenario)));
}

/**
 * Creates a reward that scores 1 if the pattern is found in the text, else 0. Anchor the pattern (`^…$`) to match the whole text.
 *
 * @param pattern - One pattern for all scenarios, or a function of the scenario. The flags `g` and `y` have no effect.
 * @param options - Name of the reward, and the part of the text to score.
 * @returns a reward of weight 1, named `regex` by default.
 * @throws ConfigError `E_CONFIG` if `pattern` is neither a RegExp nor a function.
 * @example
 * ```ts
 * regexReward(/^<answer>.*<\/answer>$/s, { name: "format" });
 * ```
 */
export function regexReward<S>(pattern: RegExp | ((scenario: S) => RegExp), options: TextRewardOptions<S> = {}): Reward<S> {
  if (typeof pattern !== "function" && !(pattern instanceof RegExp)) {
    const message = `Expected \`regexReward\` to get a RegExp or a function of the scenario, got ${typeof pattern}`;
    throw new ConfigError(message, { param: "pattern" });
  }
  // `search` starts at 0 and ignores `lastIndex`: with `test`, a global pattern would match only every second time.
  return textReward("regex", options, (text, scenario) => {
    const expression = typeof pattern === "function" ? pattern(scenario) : pattern;
    // A sticky pattern would only match at the start of the text.
    const unanchored = expression.sticky ? new RegExp(expression.source, expression.flags.replace("y", "")) : expression;
    return text.search(unanchored) >= 0;
  });
}

/**
 * Creates a reward that scores 1 if the first or last number of the text equals the expected number within the tolerance, else 0:
 * `|x − y| ≤ max(relativeTolerance · max(|x|, |y|), tolerance)`. Parses commas as thousands separators, signs, decimals and exponents.
 *
 * @param expected - Returns the right number of a scenario.
 * @param options - Tolerances, first or last number, name of the reward, and the part of the text to score.
 * @returns a reward of weight 1, named `numeric` by default.
 * @throws ConfigError `E_CONFIG` for a tolerance below 0 or not finite, or if `expected` is not a function.
 * @source The comparison is the one of Python's `math.isclose`.
 * @example
 * ```ts
 * numericReward((scenario: { total: number }) => scenario.total, { tolerance: 0.01 });
 * ```
 */
export function numericReward<S>(expected: (scenario: S) => number, options: NumericRewardOptions<S> = {}): Reward<S> {
  checkFunction("numericReward", expected);
  const { tolerance = 0, relativeTolerance = 1e-9, which = "last" } = options;
  for (const [param, value] of Object.entries({ tolerance, relativeTolerance })) {
    if (Number.isFinite(value) && value >= 0) continue;
    refuse(param, "a finite number of at least 0", value, ConfigError);
  }
  if (which !== "first" && which !== "last") refuse("which", '"first" or "last"', which, ConfigError);
  return textReward("numeric", options, (text, scenario) => {
    const right = expected(scenario);
    if (!Number.isFinite(right))
      throw new ConfigError(`Expected the right number to be finite, got \`${String(right)}\``, { param: "expected" });
    const written = numberIn(text, which);
    if (written === null) return false;
    const magnitude = Math.max(Math.abs(written), Math.abs(right));
    return Math.abs(written - right) <= Math.max(relativeTolerance * magnitude, tolerance);
  });
}

/**
 * Creates a reward that scores 1 if the text is JSON that the schema accepts, else 0. `format` is not checked, which is the default of
 * JSON Schema 2020-12.
 *
 * The validator is loaded and the schema is compiled when the first text is scored; an invalid schema, including misspelled keywords,
 * fails then.
 *
 * @param schema - JSON Schema 2020-12, or draft-07 if declared by its `$schema`. `z.toJSONSchema(…)` makes one.
 * @param options - Name of the reward, and the part of the text to score.
 * @returns a reward of weight 1, named `json_schema` by default.
 * @throws ConfigError `E_CONFIG` if `schema` is not an object.
 * @example
 * ```ts
 * jsonSchemaReward({ type: "object", properties: { city: { type: "string" } }, required: ["city"] });
 * ```
 */
export function jsonSchemaReward<S>(schema: JsonObject, options: TextRewardOptions<S> = {}): Reward<S> {
  if (typeof schema !== "object" || schema === null || Array.isArray(schema)) {
    throw new ConfigError(`Expected \`jsonSchemaReward\` to get a JSON Schema object, got \`${String(schema)}\``, { param: "schema" });
  }
  let compiled: Promise<ValidateFunction> | undefined;
  return textReward("json_schema", options, async (text) => {
    const accepts = await (compiled ??= compile(schema));
    try {
      return accepts(JSON.parse(text));
    } catch (error) {
      if (error instanceof SyntaxError) return false;
      throw error;
    }
  });
}

/** Compiles a JSON Schema. @throws ConfigError `E_CONFIG` for an invalid one. */
async function compile(schema: JsonObject): Promise<ValidateFunction> {
  // Imported lazily: only programs that score by schema load the validator.
  const isDraft7 = typeof schema["$schema"] === "string" && schema["$schema"].includes("draft-07");
  const { default: module } = isDraft7 ? await import("ajv") : await import("ajv/dist/2020.js");
  const ajv = new module.default({ strictTypes: false, strictTuples: false, validateFormats: false, logger: false });
  try {
    return ajv.compile(schema);
  } catch (error) {
    const message = `The schema of a \`jsonSchemaReward\` does not compile: ${messageOf(error)}`;
    throw new ConfigError(message, { cause: error, param: "schema" });
  }
}

/** Creates a reward of the last text, or of the part that `extract` returns. */
function textReward<S>(
  kind: string,
  { name = kind, extract }: TextRewardOptions<S>,
  score: (text: string, scenario: S) => number | boolean | Promise<number | boolean>,
): Reward<S> {
  return reward(name, ({ text, scenario }) => {
    const part = extract === undefined ? text : extract(text, scenario);
    return part === null || part === undefined ? 0 : score(part, scenario);
  });
}

/** @throws ConfigError `E_CONFIG` if the first argument of the function `creator` is not a function. */
function checkFunction(creator: string, value: unknown): void {
  if (typeof value === "function") return;
  throw new ConfigError(`Expected \`${creator}\` to get a function of the scenario, got ${typeof value}`, { param: "rewards" });
}

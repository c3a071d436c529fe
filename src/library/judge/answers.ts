/** Forms of a judge's answer: JSON schema, description for the prompt, and strict parsing. An answer is valid as a whole or not at all. */
import type { JsonObject } from "../../base/schema/index.ts";
import { isRecord } from "../../base/util/values.ts";

/** Result of parsing an answer: the value, or a description of every problem for the judge. */
export type Parsed<T> = { readonly value: T } | { readonly problem: string };

/** Form of a judge's answer; `T` is the value that parsing returns. */
export interface AnswerForm<T> {
  /** Name of the schema in `response_format`. */
  readonly name: string;
  /** JSON schema of the answer, for `response_format`. */
  readonly schema: JsonObject;
  /** Example of the JSON, for the prompt. */
  readonly example: string;
  /** Checks and converts the parsed JSON of an answer. */
  readonly parse: (value: unknown) => Parsed<T>;
}

/** Score of one candidate or criterion. */
export interface JudgedScore {
  /** Score in [0, 1]. */
  readonly score: number;
  /** Reason for the score; `""` without an explanation. */
  readonly explanation: string;
}

/** Ranking of candidates with an explanation. */
export interface JudgedRanking {
  /** Ids of the candidates, the best first. */
  readonly ranking: readonly string[];
  readonly explanation: string;
}

/** Verdict on an answer that was compared with a reference answer. */
export interface JudgedVerdict {
  /** Whether both answers state the same result. */
  readonly equivalent: boolean;
  readonly explanation: string;
}

/** JSON schema of an explanation. */
const EXPLANATION = { type: "string", description: "One or two sentences." };

/**
 * Creates the form `{"scores": [{"id", "explanation", "score"}, …]}` with exactly one entry per id.
 *
 * @param explain - Whether the form asks for explanations, which {@link rankingForm} and {@link verdictForm} also have as an option. The
 *   explanation precedes the score, so that the model reasons before it decides.
 */
export function scoresForm(ids: readonly string[], explain: boolean): AnswerForm<ReadonlyMap<string, JudgedScore>> {
  const properties = {
    id: { type: "string", enum: [...ids] },
    ...(explain ? { explanation: EXPLANATION } : {}),
    score: { type: "number", minimum: 0, maximum: 1 },
  };
  const entry = objectSchema(properties);
  const shape = explain ? '{"id": "…", "explanation": "…", "score": 0.0}' : '{"id": "…", "score": 0.0}';
  return {
    name: "scores",
    schema: objectSchema({ scores: { type: "array", items: entry, minItems: ids.length, maxItems: ids.length } }),
    example: `{"scores": [${shape}${ids.length > 1 ? ", …" : ""}]}`,
    parse: (value) => {
      const list = isRecord(value) ? value["scores"] : undefined;
      if (!Array.isArray(list)) return { problem: "expected an object with the list `scores`" };
      const entries: readonly unknown[] = list;
      const gotIds = entries.map((each) => (isRecord(each) ? each["id"] : undefined));
      const problems = idProblems(gotIds, ids);
      const scores = new Map<string, JudgedScore>();
      for (const each of entries.filter(isRecord)) {
        const { id, score, explanation } = each;
        if (typeof score === "number" && score >= 0 && score <= 1) scores.set(String(id), { score, explanation: textOf(explanation) });
        else problems.push(`expected the score of ${shown(id)} to be a number from 0 to 1, got ${shown(score)}`);
      }
      return problems.length > 0 ? { problem: joined(problems) } : { value: scores };
    },
  };
}

/** Creates the form `{"explanation", "ranking": [ids, the best first]}` with every id exactly once. */
export function rankingForm(ids: readonly string[], explain: boolean): AnswerForm<JudgedRanking> {
  const ranking = { type: "array", items: { type: "string", enum: [...ids] }, minItems: ids.length, maxItems: ids.length };
  return {
    name: "ranking",
    schema: objectSchema({ ...(explain ? { explanation: EXPLANATION } : {}), ranking }),
    example: explain ? '{"explanation": "…", "ranking": ["best id", …, "worst id"]}' : '{"ranking": ["best id", …, "worst id"]}',
    parse: (value) => {
      const list = isRecord(value) ? value["ranking"] : undefined;
      if (!isRecord(value) || !Array.isArray(list)) return { problem: "expected an object with the list `ranking`" };
      const problems = idProblems(list, ids);
      if (problems.length > 0) return { problem: joined(problems) };
      return { value: { ranking: list as string[], explanation: textOf(value["explanation"]) } };
    },
  };
}

/** Creates the form `{"explanation", "equivalent": true or false}`. */
export function verdictForm(explain: boolean): AnswerForm<JudgedVerdict> {
  return {
    name: "verdict",
    schema: objectSchema({ ...(explain ? { explanation: EXPLANATION } : {}), equivalent: { type: "boolean" } }),
    example: explain ? '{"explanation": "…", "equivalent": true}' : '{"equivalent": true}',
    parse: (value) => {
      const equivalent = isRecord(value) ? value["equivalent"] : undefined;
      if (!isRecord(value) || typeof equivalent !== "boolean") {
        return { problem: `expected an object in which \`equivalent\` is true or false, got ${shown(equivalent)}` };
      }
      return { value: { equivalent, explanation: textOf(value["explanation"]) } };
    },
  };
}

/**
 * Parses the text of an answer. The JSON object may stand alone, in a code fence, between other text, or after reasoning in `<think>` tags.
 * Text with several JSON objects is not valid.
 */
export function parseJudgement<T>(text: string, form: AnswerForm<T>): Parsed<T> {
  const reasoningEnd = text.lastIndexOf(REASONING_END);
  const answer = reasoningEnd < 0 ? text : text.slice(reasoningEnd + REASONING_END.length);
  const [start, end] = [answer.indexOf("{"), answer.lastIndexOf("}")];
  if (start < 0 || end < start) return { problem: "expected a JSON object, got none" };
  let value: unknown;
  try {
    value = JSON.parse(answer.slice(start, end + 1));
  } catch (error) {
    return { problem: `expected one valid JSON object: ${(error as Error).message.slice(0, 200)}` };
  }
  return form.parse(value);
}

/** Tag at the end of a model's reasoning, which precedes the answer. */
const REASONING_END = "</think>";

/** Returns the problems of a list that must have every id exactly once. */
function idProblems(got: readonly unknown[], ids: readonly string[]): string[] {
  const known = new Set(ids);
  const unknown = got.filter((id) => typeof id !== "string" || !known.has(id));
  const repeated = got.filter((id, index) => known.has(id as string) && got.indexOf(id) < index);
  const missing = ids.filter((id) => !got.includes(id));
  const problems = got.length === ids.length ? [] : [`expected ${ids.length} entries, one per id, got ${got.length}`];
  for (const [kind, affected] of Object.entries({ unknown, repeated, missing })) {
    if (affected.length > 0) problems.push(`${kind} ids: ${affected.map(shown).slice(0, MAX_NAMED).join(", ")}`);
  }
  return problems;
}

/** Max number of ids of each kind, and of problems, that a message names. */
const MAX_NAMED = 8;

/** Returns the first problems as one text. */
function joined(problems: readonly string[]): string {
  return problems.slice(0, MAX_NAMED).join("; ");
}

/** Returns the JSON schema of an object with exactly these properties. */
function objectSchema(properties: JsonObject): JsonObject {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

/** Returns a value as messages show it: JSON, cut to 80 characters. */
function shown(value: unknown): string {
  return `\`${(JSON.stringify(value) ?? "nothing").slice(0, 80)}\``;
}

/** Returns an explanation; `""` for a value that is not a text, because a missing explanation is no problem. */
function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

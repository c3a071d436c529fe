/**
 * Verifiable instructions: a short answer about a topic under one or two constraints that a program can check, such as a number of words, a
 * list, JSON with given keys, or a language.
 */
import { uniform } from "../shared/draws.ts";
import { type Split, SPLITS } from "../shared/splits.ts";
import { type Constraint, instruction, isSatisfied, type Kind, KINDS, PAIRS, VALUES, wordsOf } from "./constraints.ts";
import { type Topic, TOPICS } from "./topics.ts";

/** Problem: a prompt about a topic with one or two constraints. */
export interface InstructionScenario {
  readonly id: string;
  readonly prompt: string;
  readonly topic: Topic;
  readonly constraints: readonly Constraint[];
}

/** Max tokens of an answer; a longer answer is cut off and counts as wrong. */
export const MAX_COMPLETION_TOKENS = 40;
/** Share of problems with a single constraint. */
const SINGLE = 1 / 3;
/** Min number of words of an answer. */
const MIN_WORDS = 4;
/** Min share of different words in an answer. */
const MIN_DISTINCT = 0.6;
/** Number of consecutive words of the prompt that an answer must not repeat. */
const COPIED_WORDS = 6;
/** Every fourth topic and every fourth pair of kinds is held out. */
const HELD_OUT_EVERY = 4;

const REQUESTS: readonly string[] = [
  "Tell me about {}.",
  "Write something about {}.",
  "Say something short about {}.",
  "Describe {} briefly.",
];

/** Returns the topics of the training splits, or the held-out topics. */
export function topicsOf(split: Split): readonly Topic[] {
  return TOPICS.filter((_, at) => isHeldOut(at) === (split === "held-out"));
}

/** Returns the pairs of kinds of the training splits, or the held-out pairs. */
export function pairsOf(split: Split): readonly (readonly [Kind, Kind])[] {
  return PAIRS.filter((_, at) => isHeldOut(at) === (split === "held-out"));
}

function isHeldOut(at: number): boolean {
  return at % HELD_OUT_EVERY === 1;
}

/**
 * Returns problem `index` of a split, a pure function of the seed. Topics and pairs of kinds of held-out problems occur in no other split.
 */
export function instructionScenario(split: Split, seed: number, index: number): InstructionScenario {
  let draws = 0;
  const draw = () => uniform(BigInt(seed), SPLITS.indexOf(split), index, draws++);
  const pick = <T>(list: readonly T[]): T => list[Math.floor(draw() * list.length)] as T;
  const topic = pick(topicsOf(split));
  const kinds = draw() < SINGLE ? [pick(KINDS)] : shuffled(pick(pairsOf(split)), draw());
  const constraints = kinds.map((kind) => ({ kind, value: pick<unknown>(VALUES[kind]) }) as Constraint);
  const rules = constraints.map((constraint) => instruction(constraint, draw() < 0.5 ? 0 : 1));
  const request = pick(REQUESTS).replace("{}", topic.name);
  return { id: `${split}-${seed}-${index}`, prompt: [request, ...rules].join(" "), topic, constraints };
}

function shuffled<T>([first, second]: readonly [T, T], draw: number): T[] {
  return draw < 0.5 ? [first, second] : [second, first];
}

/** Returns the prompt messages of a problem. */
export function instructionMessages({ prompt }: InstructionScenario): { role: "user"; content: string }[] {
  return [{ role: "user", content: prompt }];
}

/** Returns the share of the constraints that the answer satisfies. */
export function followed(text: string, { constraints }: InstructionScenario): number {
  return constraints.filter((constraint) => isSatisfied(constraint, text)).length / constraints.length;
}

/**
 * Returns true if an answer is not degenerate: it has at least four words, names the topic, has different lines and mostly different words,
 * and repeats no six consecutive words of the prompt.
 */
export function isSensible(text: string, { prompt, topic }: InstructionScenario): boolean {
  const words = wordsOf(text);
  const lines = text.split("\n").map((line) => line.trim().toLowerCase());
  return (
    words.length >= MIN_WORDS &&
    words.some((word) => topic.stems.some((stem) => word.replace(/^[ld]['’]/u, "").startsWith(stem))) &&
    new Set(words).size >= MIN_DISTINCT * words.length &&
    new Set(lines).size === lines.length &&
    !hasCommonRun(words, wordsOf(prompt))
  );
}

/** Returns true if both lists contain the same run of consecutive words. */
function hasCommonRun(words: readonly string[], others: readonly string[]): boolean {
  const runs = (list: readonly string[]) =>
    Array.from({ length: Math.max(0, list.length - COPIED_WORDS + 1) }, (_, at) => list.slice(at, at + COPIED_WORDS).join(" "));
  const known = new Set(runs(others));
  return runs(words).some((run) => known.has(run));
}

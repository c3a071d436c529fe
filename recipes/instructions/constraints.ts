/** Kinds of constraints on an answer: their instructions, and checks that are pure functions of the text. */
import type { Language } from "./topics.ts";

/** Type of the parameter of each kind of constraint; `true` for kinds without one. */
interface Values {
  readonly "words-at-most": number;
  readonly sentences: number;
  readonly bullets: number;
  readonly begin: string;
  readonly end: string;
  readonly include: string;
  readonly avoid: string;
  readonly json: readonly [string, string];
  readonly language: Language;
  readonly "lower-case": true;
  readonly quotes: true;
  readonly postscript: true;
}

/** Name of a kind of constraint. */
export type Kind = keyof Values;

/** Constraint on an answer. `value` is the parameter of its kind. */
export type Constraint = { readonly [K in Kind]: { readonly kind: K; readonly value: Values[K] } }[Kind];

/** Parameters of each kind. */
export const VALUES: { readonly [K in Kind]: readonly Values[K][] } = {
  "words-at-most": [6, 7, 8, 9, 10, 12],
  sentences: [1, 2, 3],
  bullets: [2, 3, 4],
  begin: ["In short", "Well", "Today", "I think", "Of course", "As you know"],
  end: ["That is all", "Thank you", "Have a nice day", "I hope this helps", "The end"],
  include: ["people", "always", "simple", "world", "life", "beautiful"],
  avoid: ["the", "a", "and", "of", "to", "in"],
  json: [
    ["name", "fact"],
    ["topic", "text"],
    ["title", "summary"],
    ["subject", "detail"],
  ],
  language: ["French", "Spanish", "German"],
  "lower-case": [true],
  quotes: [true],
  postscript: [true],
};

/** Names of all kinds. */
export const KINDS = Object.keys(VALUES) as readonly Kind[];

/** Kinds that cannot be satisfied together, or whose checks would read each other's text. */
const CONFLICTS: { readonly [K in Kind]?: readonly Kind[] } = {
  sentences: ["bullets", "json", "words-at-most", "postscript"],
  bullets: ["json", "words-at-most", "begin", "end", "postscript", "quotes", "language"],
  json: ["words-at-most", "begin", "end", "postscript", "quotes", "language"],
  language: ["words-at-most", "begin", "end", "include", "avoid"],
  end: ["words-at-most", "postscript", "quotes", "avoid"],
  begin: ["quotes", "avoid"],
  postscript: ["words-at-most", "quotes"],
};

/** All pairs of kinds that can be satisfied together. */
export const PAIRS: readonly (readonly [Kind, Kind])[] = KINDS.flatMap((first, at) =>
  KINDS.slice(at + 1)
    .filter((second) => CONFLICTS[first]?.includes(second) !== true && CONFLICTS[second]?.includes(first) !== true)
    .map((second) => [first, second] as const),
);

/** Returns the instruction in words, in one of two wordings. */
export function instruction(constraint: Constraint, wording: 0 | 1): string {
  return instructions(constraint)[wording];
}

function instructions({ kind, value }: Constraint): readonly [string, string] {
  switch (kind) {
    case "words-at-most":
      return [`Use at most ${value} words.`, `Your answer must not be longer than ${value} words.`];
    case "sentences":
      return value === 1
        ? ["Write exactly one sentence.", "Your answer must be a single sentence."]
        : [`Write exactly ${value} sentences.`, `Your answer must have ${value} sentences.`];
    case "bullets":
      return [
        `Write exactly ${value} bullet points, each on a line that starts with "- ".`,
        `Answer only with a list of ${value} lines, each starting with "- ".`,
      ];
    case "begin":
      return [`Begin with the words "${value}".`, `Your answer must start with "${value}".`];
    case "end":
      return [`End with the words "${value}".`, `The last words of your answer must be "${value}".`];
    case "include":
      return [`Use the word "${value}".`, `Your answer must contain the word "${value}".`];
    case "avoid":
      return [`Do not use the word "${value}".`, `Your answer must not contain the word "${value}".`];
    case "json":
      return [
        `Answer only with a JSON object with the keys "${value[0]}" and "${value[1]}".`,
        `Your answer must be valid JSON with two keys, "${value[0]}" and "${value[1]}", and nothing else.`,
      ];
    case "language":
      return [`Answer in ${value}.`, `Write your answer in ${value}.`];
    case "lower-case":
      return ["Use only lowercase letters.", "Write your answer in all lowercase, without capital letters."];
    case "quotes":
      return ["Put your whole answer in double quotes.", "Wrap the entire answer in double quotation marks."];
    case "postscript":
      return ['Add a last line that starts with "P.S."', 'After your answer, add a postscript on a new line that starts with "P.S."'];
  }
}

/** Returns true if a text satisfies the constraint. A text without words satisfies none. */
export function isSatisfied({ kind, value }: Constraint, answer: string): boolean {
  const text = answer.trim();
  const words = wordsOf(text);
  if (words.length === 0) return false;
  switch (kind) {
    case "words-at-most":
      return words.length <= value;
    case "sentences":
      return countSentences(text) === value;
    case "bullets": {
      const lines = text.split("\n");
      return lines.length === value && lines.every((line) => /^- +\S/u.test(line));
    }
    case "begin":
      return new RegExp(`^["“]?${value}(?!\\p{L})`, "iu").test(text);
    case "end":
      return new RegExp(`(?<!\\p{L})${value}[.!?]?["”]?$`, "iu").test(text);
    case "include":
      return words.includes(value);
    case "avoid":
      return !words.includes(value);
    case "json":
      return hasKeys(text, value);
    case "language":
      return languageOf(words) === value;
    case "lower-case":
      return text === text.toLowerCase();
    case "quotes":
      return /^"[^"]+"$/u.test(text);
    case "postscript":
      return /\p{L}.*\n\s*P\.\s?S\.:?\s+\S[^\n]*$/isu.test(text);
  }
}

/** Returns the words of a text in lower case: runs of letters, digits and apostrophes. */
export function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+(?:['’][\p{L}\p{N}]+)*/gu) ?? [];
}

/** Counts sentences: parts between full stops, exclamation marks or question marks that contain a letter. */
export function countSentences(text: string): number {
  return text.split(/[.!?]+(?=["”]?(?:\s|$))/u).filter((part) => /\p{L}/u.test(part)).length;
}

function hasKeys(text: string, keys: readonly string[]): boolean {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return false;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const entries = Object.entries(value);
  return entries.length === keys.length && entries.every(([key, part]) => keys.includes(key) && typeof part === "string" && part !== "");
}

/** Frequent function words by language. */
const FUNCTION_WORDS: Readonly<Record<Language | "English", readonly string[]>> = {
  English: "the a an is are and of to in it for that with on you they have can be from our we many".split(" "),
  French: "le la les l' des est sont et une un dans pour qui que avec du de au en ce il elle nous vous se plus par on pas cette".split(" "),
  Spanish: "el la los las es son y una un en para que con del de al se por su lo más muy como ella nos no esta este".split(" "),
  German: "der die das ist sind und ein eine einen in für mit von zu im den dem es sie wir auf nicht sich auch wird werden".split(" "),
};

/** Returns the language with the most function words among the words, if it has at least two and more than every other language. */
export function languageOf(words: readonly string[]): Language | "English" | null {
  const parts = words.flatMap((word) => (/^[ldjn]['’]/u.test(word) ? [word.slice(0, 1) === "l" ? "l'" : "de", word.slice(2)] : [word]));
  const counts = Object.entries(FUNCTION_WORDS)
    .map(([language, list]) => [language as Language | "English", parts.filter((part) => list.includes(part)).length] as const)
    .toSorted(([, a], [, b]) => b - a);
  const [[language, count], [, next]] = counts as [(typeof counts)[number], (typeof counts)[number]];
  return count >= 2 && count > next ? language : null;
}

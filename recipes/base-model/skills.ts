/**
 * Skills of the base model. Each skill is small and general, and none is the task of a recipe.
 *
 * Excluded on purpose: reversing a text or any part of it, sorting, adding two numbers, guessing a number from hints, chains of tool calls.
 */
import { wholePieces } from "./tokenizer.ts";
import type { Draws } from "./draws.ts";

/** Question about an input, with its answer. */
export interface Problem {
  /** User message if the rule is in the system turn. */
  readonly input: string;
  /** User message without a system turn. */
  readonly request: string;
  readonly answer: string;
}

/** A skill: system prompts that state its rule, and problems under that rule. */
export interface Skill {
  readonly name: string;
  /** Relative frequency in training. */
  readonly weight: number;
  /** Index of the first exercise that may use the skill. */
  readonly since: number;
  readonly rules: readonly string[];
  /** Draws a problem; `longest` is the max length of its text. */
  readonly draw: (draws: Draws, longest: number) => Problem;
}

const words = wholePieces()
  .filter((piece) => /^ [a-z]+$/.test(piece))
  .map((piece) => piece.slice(1));

/** Draws a text: random letters, or digits with probability 0.1. */
function text(draws: Draws, low: number, high: number): string {
  return draws.chance(0.1) ? draws.digits(low, high) : draws.letters(low, high);
}

/** Creates a skill that maps a text to a text. */
function transform(
  name: string,
  weight: number,
  rules: readonly string[],
  requests: readonly string[],
  apply: (given: string) => string,
  since: number = SINCE.text,
): Skill {
  return {
    name,
    weight,
    since,
    rules,
    draw: (draws, longest) => {
      const given = text(draws, 2, longest);
      return { input: given, request: draws.pick(requests).replace("{}", given), answer: apply(given) };
    },
  };
}

/**
 * Creates a skill that looks up one to four positions of a text; `places` returns the positions that may be asked for, with their names.
 */
function lookup(
  name: string,
  weight: number,
  rules: readonly string[],
  request: (asked: string, given: string) => string,
  places: (given: string) => readonly Place[],
): Skill {
  return {
    name,
    weight,
    since: SINCE.lookup,
    rules,
    draw: (draws, longest) => {
      for (;;) {
        const given = text(draws, 2, Math.min(9, longest));
        const open = places(given);
        if (open.length > 0) {
          const chosen = draws.some(open, draws.integer(1, Math.min(4, open.length)));
          const asked = chosen.map((place) => place.asked).join(" ");
          return { input: `${given} ${asked}`, request: request(asked, given), answer: chosen.map((place) => place.answer).join("") };
        }
      }
    },
  };
}

/** Position of a text: its name in the question, and the character that is the answer. */
interface Place {
  readonly asked: string;
  readonly answer: string;
}

/** Returns the positions next to characters that occur once: `step` -1 is before, 1 is after. */
function neighbours(given: string, step: -1 | 1): Place[] {
  return characters(given).flatMap((asked, index) => {
    const answer = given[index + step];
    return answer !== undefined && given.indexOf(asked) === given.lastIndexOf(asked) ? [{ asked, answer }] : [];
  });
}

const characters = (given: string): string[] => Array.from(given);

/**
 * Index of the first exercise per kind of skill. Copying starts first and alone, because all other skills build on it and it is learned
 * many times sooner without them.
 */
export const SINCE = { copying: 0, text: 8_000, lookup: 16_000, rest: 24_000 } as const;

export const textSkills: readonly Skill[] = [
  transform(
    "copy",
    4,
    ["Repeat the text character-by-character.", "Copy the text.", "Say what the user says."],
    ["Repeat: {}", "Copy {}", "Say {}"],
    (given) => given,
    SINCE.copying,
  ),
  transform("spell-spaces", 1, ["Spell the text letter-by-letter with spaces."], ["Spell {}", "Spell {} with spaces."], (given) =>
    characters(given).join(" "),
  ),
  transform("spell-dashes", 1, ["Spell the text with dashes."], ["Spell {} with -"], (given) => characters(given).join("-")),
  transform("upper-case", 1, ["Write the text in upper case."], ["Write {} in upper case."], (given) => given.toUpperCase()),
  transform("double", 1, ["Write every character of the text twice."], ["Write every letter of {} twice."], (given) =>
    characters(given)
      .map((character) => character + character)
      .join(""),
  ),
  transform("number", 1, ["Number the letters of the text."], ["Number the letters of {}"], (given) =>
    characters(given)
      .map((character, index) => `${character}${index + 1}`)
      .join(""),
  ),
  transform("number-down", 3, ["Number the letters of the text down to 1."], ["Number the letters of {} down to 1."], (given) =>
    characters(given)
      .map((character, index) => `${character}${given.length - index}`)
      .join(""),
  ),
  transform(
    "length",
    1,
    ["Count the letters of the text.", "How many letters are in the text?"],
    ["Count the letters of {}", "How many letters are in {}?"],
    (given) => String(given.length),
  ),
  transform("drop-first", 1, ["Write the text without its first letter."], ["Write {} without the first letter."], (given) =>
    given.slice(1),
  ),
  transform("drop-last", 1, ["Write the text without its last letter."], ["Write {} without the last letter."], (given) =>
    given.slice(0, -1),
  ),
  transform("first", 1, ["Name the first letter of the text."], ["What is the first letter of {}?"], (given) => given.slice(0, 1)),
  transform("last", 1, ["Name the last letter of the text."], ["What is the last letter of {}?"], (given) => given.slice(-1)),
  transform("last-two", 1, ["Name the last two letters of the text."], ["What are the last two letters of {}?"], (given) =>
    given.slice(-2),
  ),
  transform(
    "last-first",
    1,
    ["Put the last letter in the first place."],
    ["Put the last letter of {} first."],
    (given) => given.slice(-1) + given.slice(0, -1),
  ),
  transform(
    "first-last",
    1,
    ["Put the first letter in the last place."],
    ["Put the first letter of {} last."],
    (given) => given.slice(1) + given.slice(0, 1),
  ),
  lookup(
    "place",
    3,
    ["Name the letters at the given places.", "Name the letter at the given place."],
    (asked, given) => `Name letter ${asked} of ${given}`,
    (given) => characters(given).map((answer, index) => ({ asked: String(index + 1), answer })),
  ),
  lookup(
    "place-from-end",
    3,
    ["Name the letters at the given places from the end."],
    (asked, given) => `Name letter ${asked} from the end of ${given}`,
    (given) => characters(given).map((answer, index) => ({ asked: String(given.length - index), answer })),
  ),
  lookup(
    "before",
    4,
    ["Name the letters before the given letters.", "Name the letter before."],
    (asked, given) => `Name the letter before ${asked} in ${given}`,
    (given) => neighbours(given, -1),
  ),
  lookup(
    "after",
    3,
    ["Name the letters after the given letters.", "Name the letter after."],
    (asked, given) => `Name the letter after ${asked} in ${given}`,
    (given) => neighbours(given, 1),
  ),
  {
    name: "contains",
    weight: 1,
    since: SINCE.rest,
    rules: ["Is the given letter in the text?"],
    draw: (draws, longest) => {
      const given = draws.letters(2, longest);
      const letter = draws.chance(0.5) ? draws.pick(characters(given)) : draws.letters(1, 1);
      const answer = given.includes(letter) ? "yes" : "no";
      return { input: `${given} ${letter}`, request: `Is ${letter} in ${given}?`, answer };
    },
  },
];

export const numberSkills: readonly Skill[] = [
  {
    name: "next-number",
    weight: 1,
    since: SINCE.rest,
    rules: ["Say the next number.", "Which number is after this number?"],
    draw: (draws) => {
      const number = numberOfAnySize(draws);
      return { input: String(number), request: `Which number is after ${number}?`, answer: String(number + 1) };
    },
  },
  {
    name: "previous-number",
    weight: 1,
    since: SINCE.rest,
    rules: ["Say the number before this number."],
    draw: (draws) => {
      const number = numberOfAnySize(draws) + 1;
      return { input: String(number), request: `Which number is before ${number}?`, answer: String(number - 1) };
    },
  },
  {
    name: "count-up",
    weight: 1,
    since: SINCE.rest,
    rules: ["Count from the first number to the second number."],
    draw: (draws) => {
      const low = draws.integer(0, 95);
      const high = low + draws.integer(2, 6);
      const answer = Array.from({ length: high - low + 1 }, (_, index) => low + index).join(" ");
      return { input: `${low} ${high}`, request: `Count from ${low} to ${high}`, answer };
    },
  },
  {
    name: "count-down",
    weight: 1,
    since: SINCE.rest,
    rules: ["Count down from the first number to the second number."],
    draw: (draws) => {
      const low = draws.integer(0, 95);
      const high = low + draws.integer(2, 6);
      const answer = Array.from({ length: high - low + 1 }, (_, index) => high - index).join(" ");
      return { input: `${high} ${low}`, request: `Count down from ${high} to ${low}`, answer };
    },
  },
  {
    name: "compare",
    weight: 1,
    since: SINCE.rest,
    rules: ["Is the first number more than the second?"],
    draw: (draws) => {
      const [left, right] = [numberOfAnySize(draws), numberOfAnySize(draws)];
      return { input: `${left} ${right}`, request: `Is ${left} more than ${right}?`, answer: left > right ? "yes" : "no" };
    },
  },
];

export const wordSkills: readonly Skill[] = [
  {
    name: "words",
    weight: 1,
    since: SINCE.rest,
    rules: ["Repeat the words.", "Copy every word."],
    draw: (draws) => {
      const phrase = draws.some(words, draws.integer(2, 6)).join(" ");
      return { input: phrase, request: `Repeat the words: ${phrase}`, answer: phrase };
    },
  },
  {
    name: "word-place",
    weight: 1,
    since: SINCE.rest,
    rules: ["Name the word at the given place."],
    draw: (draws) => {
      const list = draws.some(words, draws.integer(2, 6));
      const place = draws.integer(1, list.length);
      return {
        input: `${list.join(" ")} ${place}`,
        request: `What is word ${place} of: ${list.join(" ")}?`,
        answer: list[place - 1] as string,
      };
    },
  },
  {
    name: "following-word",
    weight: 1,
    since: SINCE.rest,
    rules: ["Name the word after the given word."],
    draw: (draws) => {
      const list = draws.some(words, draws.integer(3, 6));
      const place = draws.integer(0, list.length - 2);
      return {
        input: `${list.join(" ")}: ${list[place]}`,
        request: `Which word is after ${list[place]} in: ${list.join(" ")}?`,
        answer: list[place + 1] as string,
      };
    },
  },
];

function numberOfAnySize(draws: Draws): number {
  return draws.integer(0, draws.pick([9, 20, 99, 999]));
}

/** Words of the vocabulary, without their leading space. */
export const vocabularyWords: readonly string[] = words;

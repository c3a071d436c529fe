/** Correct answers, written by a program: sentences from templates, kept if the checks of the rewards accept them. */
import { uniform } from "../shared/draws.ts";
import type { Kind } from "./constraints.ts";
import { followed, type InstructionScenario, isSensible } from "./task.ts";
import type { Language, Topic } from "./topics.ts";

/** Max drafts of an answer. */
const MAX_DRAFTS = 5000;
/** Share of English sentences that state a fact about their topic. */
const FACTS = 0.7;

/** English sentences without the final stop; `{t}` is the topic, `{T}` the topic at the beginning of a sentence, `{is}` its verb. */
const SENTENCES: readonly string[] = [
  "Many people love {t}",
  "People all over the world know {t}",
  "{T} {is} a simple part of life",
  "{T} {is} always worth a closer look",
  "Life would be less beautiful without {t}",
  "I always enjoy {t}",
  "Nothing beats {t}",
  "You can find {t} almost everywhere",
  "We can learn so much from {t}",
  "The world needs {t}",
  "Imagine a world without {t}",
  "Daily life needs {t}",
  "Keep it simple with {t}",
  "{T} {is} beautiful",
  "{T} {is} useful for people",
  "Think about {t} for one minute",
  "Children often draw {t} at school",
  "Few things are as simple as {t}",
  "Every country has its own view about {t}",
];
/** Endings of English sentences. */
const TAILS: readonly string[] = ["", "", "", " today", " every day", " in many places", " all year long", " in the whole world"];
/** Short sentences that do not name the topic. */
const FOLLOWING: readonly string[] = [
  "Most people agree",
  "That makes life better",
  "This is simple to see",
  "It is a beautiful thing",
  "Look closely next time",
  "The world is full of them",
  "That has always been true",
  "People never forget this",
  "Try it yourself",
];
const POSTSCRIPTS: readonly string[] = [
  "Have a look yourself.",
  "There is much more to say.",
  "Ask me for more.",
  "Think about it today.",
  "I like this topic.",
];
/** Sentences in other languages; `{T}` is the translated topic with its article. */
const TRANSLATED: Readonly<Record<Language, readonly string[]>> = {
  French: [
    "{T} est une chose que beaucoup de gens aiment",
    "{T} joue un rôle dans la vie de tous les jours",
    "Pour les enfants, {t} est un sujet de conversation",
    "{T} fait partie de notre monde et de notre vie",
    "On parle de cela dans tous les pays : {t} est une belle chose",
  ],
  Spanish: [
    "{T} es una cosa que muchas personas conocen",
    "{T} forma parte de la vida de todos los días",
    "Para los niños, {t} es un tema muy interesante",
    "{T} es importante en el mundo y en la vida",
    "En muchos países se habla de esto: {t} es una cosa bonita",
  ],
  German: [
    "{T} ist für viele Menschen sehr wichtig",
    "{T} spielt in der Welt und im Leben eine Rolle",
    "Für die Kinder ist {t} ein schönes Thema",
    "{T} gehört zu den Dingen, die wir nicht vergessen",
    "In vielen Ländern ist {t} auch ein Teil von dem Alltag",
  ],
};

type Draw = () => number;

/**
 * Returns a correct answer of a problem, a pure function of its text.
 *
 * @throws RangeError if no draft passes all checks.
 */
export function goldAnswer(scenario: InstructionScenario): string {
  const seed = BigInt(hash(scenario.id + scenario.prompt));
  for (let attempt = 0; attempt < MAX_DRAFTS; attempt++) {
    let draws = 0;
    const text = draft(scenario, () => uniform(seed, attempt, draws++));
    if (followed(text, scenario) === 1 && isSensible(text, scenario)) return text;
  }
  throw new RangeError(`Expected an answer within ${MAX_DRAFTS} drafts: ${scenario.prompt}`);
}

function draft({ topic, constraints }: InstructionScenario, draw: Draw): string {
  const value = <T>(kind: Kind) => constraints.find((constraint) => constraint.kind === kind)?.value as T | undefined;
  const isShort = value("words-at-most") !== undefined;
  const end = value<string>("end");
  const asked = value<number>("sentences");
  // The closing words are the last sentence, or the end of a single one.
  const sentences = asked === undefined || end === undefined ? asked : Math.max(1, asked - 1);
  let text = body(topic, { language: value("language"), sentences, bullets: value("bullets"), isShort }, draw);
  const keys = value<readonly [string, string]>("json");
  if (keys !== undefined)
    text = JSON.stringify({ [keys[0]]: topic.name, [keys[1]]: text })
      .replaceAll('":"', '": "')
      .replace('","', '", "');
  const begin = value<string>("begin");
  if (begin !== undefined) text = opened(begin, text);
  if (end !== undefined) text = asked === 1 ? `${text.slice(0, -1)}, ${end}.` : `${text} ${end}.`;
  if (value("postscript") === true) text = `${text}\nP.S. ${pick(POSTSCRIPTS, draw)}`;
  if (value("quotes") === true) text = `"${text}"`;
  if (value("lower-case") === true) text = text.toLowerCase();
  return text;
}

interface Shape {
  readonly language: Language | undefined;
  readonly sentences: number | undefined;
  readonly bullets: number | undefined;
  readonly isShort: boolean;
}

function body(topic: Topic, { language, sentences, bullets, isShort }: Shape, draw: Draw): string {
  if (bullets !== undefined) return list(topic, bullets, draw);
  const count = sentences ?? (isShort || draw() < 0.7 ? 1 : 2);
  const first = language === undefined ? english(topic, draw) : translated(topic, language, draw);
  const rest =
    language === undefined
      ? distinct(FOLLOWING, count - 1, draw)
      : distinct(TRANSLATED[language], count - 1, draw).map((template) => filled(template, topic.translations[language]));
  return [first, ...rest].map((sentence) => `${sentence}.`).join(" ");
}

function list(topic: Topic, count: number, draw: Draw): string {
  const [first, second] = topic.facts;
  const lines = distinct([english(topic, draw), `${capital(topic.name)} ${first}`, ...[second, ...topic.parts].map(capital)], count, draw);
  return lines.map((line) => `- ${line}`).join("\n");
}

function english(topic: Topic, draw: Draw): string {
  const base =
    draw() < FACTS
      ? `${capital(topic.name)} ${pick(topic.facts, draw)}`
      : filled(pick(SENTENCES, draw), topic.name).replace("{is}", topic.isPlural ? "are" : "is");
  return base + pick(TAILS, draw);
}

function translated(topic: Topic, language: Language, draw: Draw): string {
  return filled(pick(TRANSLATED[language], draw), topic.translations[language]);
}

function filled(template: string, name: string): string {
  return template.replace("{T}", capital(name)).replace("{t}", name);
}

/** Returns the text after opening words; "I think" continues the sentence, the others are followed by a comma. */
function opened(begin: string, text: string): string {
  const continued = text.startsWith("I ") ? text : text.slice(0, 1).toLowerCase() + text.slice(1);
  return begin === "I think" || begin === "Today" ? `${begin} ${continued}` : `${begin}, ${continued}`;
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

function pick<T>(values: readonly T[], draw: Draw): T {
  return values[Math.floor(draw() * values.length)] as T;
}

/** Draws values without repetition. */
function distinct<T>(values: readonly T[], count: number, draw: Draw): T[] {
  const left = [...values];
  return Array.from({ length: count }, () => left.splice(Math.floor(draw() * left.length), 1)[0] as T);
}

function hash(text: string): number {
  let value = 2166136261;
  for (const character of text) value = Math.imul(value ^ character.charCodeAt(0), 16777619) >>> 0;
  return value;
}

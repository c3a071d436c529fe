import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import {
  type Constraint,
  instruction,
  isSatisfied,
  type Kind,
  KINDS,
  languageOf,
  PAIRS,
  wordsOf,
} from "../../recipes/instructions/constraints.ts";
import environment, { instructionsEnvironment } from "../../recipes/instructions/environment.ts";
import { goldAnswer } from "../../recipes/instructions/gold.ts";
import { followed, instructionScenario, isSensible, pairsOf, topicsOf } from "../../recipes/instructions/task.ts";
import { TOPICS } from "../../recipes/instructions/topics.ts";
import { SPLITS } from "../../recipes/shared/splits.ts";
import { checkRun, runRecipe, TINY } from "./run-recipe.ts";

/** Texts that satisfy a constraint, and texts that do not. */
const CASES: readonly { readonly constraint: Constraint; readonly right: readonly string[]; readonly wrong: readonly string[] }[] = [
  {
    constraint: { kind: "words-at-most", value: 4 },
    right: ["Rivers don't dry up.", "Rivers."],
    wrong: ["Rivers do not dry up.", "", "..."],
  },
  {
    constraint: { kind: "sentences", value: 2 },
    right: ["One. Two.", "One! And two", '"One? Two."', "It costs 3.50 here. Two..."],
    wrong: ["One.", "One. Two. Three.", "", "One. ."],
  },
  {
    constraint: { kind: "bullets", value: 2 },
    right: ["- one\n- two", "- One.\n- Two.\n"],
    wrong: ["- one", "- one\n- two\n- three", "one\n- two", "* one\n* two", "-\n- two", "- one\n\n- two"],
  },
  {
    constraint: { kind: "begin", value: "In short" },
    right: ["In short, yes.", "IN SHORT: YES", '"In short yes"'],
    wrong: ["Yes, in short", "In shorts", "In the short"],
  },
  {
    constraint: { kind: "end", value: "That is all" },
    right: ["Yes. That is all.", "yes that is all", "YES. THAT IS ALL!"],
    wrong: ["That is all there is.", "Chat is all", "Yes. That is all. P.S."],
  },
  { constraint: { kind: "include", value: "world" }, right: ["The WORLD ends"], wrong: ["The worlds end", ""] },
  { constraint: { kind: "avoid", value: "the" }, right: ["Then there were none"], wrong: ["The end", ""] },
  {
    constraint: { kind: "json", value: ["name", "fact"] },
    right: ['{"name": "tea", "fact": "It is hot."}', '\n{"fact":"x","name":"y"}'],
    wrong: [
      '{"name": "tea"}',
      '{"name": "tea", "fact": ""}',
      '{"name": "tea", "fact": 3}',
      "name, fact",
      '["name", "fact"]',
      "```json\n{}```",
    ],
  },
  {
    constraint: { kind: "language", value: "French" },
    right: ["Le thé est une boisson."],
    wrong: ["Tea is a hot drink.", "El té es una bebida.", "thé"],
  },
  {
    constraint: { kind: "language", value: "Spanish" },
    right: ["El té es una bebida."],
    wrong: ["Le thé est une boisson.", "Der Tee ist heiß."],
  },
  {
    constraint: { kind: "language", value: "German" },
    right: ["DER TEE IST SEHR HEISS."],
    wrong: ["Tea is a hot drink.", "L'eau est chaude."],
  },
  { constraint: { kind: "lower-case", value: true }, right: ["tea is hot."], wrong: ["Tea is hot.", "", "…"] },
  {
    constraint: { kind: "quotes", value: true },
    right: ['"Tea is hot."'],
    wrong: ['"Tea is hot.', 'Tea is "hot"', '"Tea" is "hot"', '""'],
  },
  {
    constraint: { kind: "postscript", value: true },
    right: ["Tea.\nP.S. Hot.", "tea\n\np.s. it is hot"],
    wrong: ["P.S. Hot.", "Tea. P.S. Hot.", "Tea.\nP.S.", "Tea.\nP.S. Hot.\nYes."],
  },
];

describe("instructions", () => {
  test.each(CASES)("checks $constraint.kind $constraint.value", ({ constraint, right, wrong }) => {
    expect(right.filter((text) => !isSatisfied(constraint, text))).toEqual([]);
    expect(wrong.filter((text) => isSatisfied(constraint, text))).toEqual([]);
  });

  test("every kind has a case and two wordings", () => {
    expect(new Set(CASES.map(({ constraint }) => constraint.kind))).toEqual(new Set(KINDS));
    for (const { constraint } of CASES) expect(instruction(constraint, 0)).not.toBe(instruction(constraint, 1));
  });

  test("a text without enough function words has no language", () => {
    expect(["", "tea", "thé chaud", "l'eau est"].map((text) => languageOf(wordsOf(text)))).toEqual([null, null, null, "French"]);
  });

  test("an answer that is degenerate or copied is not sensible", () => {
    const scenario = instructionScenario("train", 1, 0);
    const { name } = scenario.topic;
    const bad = [
      "",
      name,
      `${name} ${name} ${name} ${name} ${name}`,
      "This is about something else",
      `- ${name} are good\n- ${name} are good`,
    ];
    expect(isSensible(`I like ${name} very much.`, scenario)).toBe(true);
    expect([...bad, scenario.prompt].filter((text) => isSensible(text, scenario))).toEqual([]);
  });

  test("an answer at the token limit is neither sensible nor exact", async () => {
    const scenario = instructionScenario("train", 1, 0);
    const text = goldAnswer(scenario);
    const score = async (name: string, reason: "stop" | "length") => {
      const choice = { index: 0, finish_reason: reason, message: { role: "assistant" as const, content: text } };
      const trajectory = { messages: () => [], choices: [choice as never], lastText: text, metrics: {}, metadata: {} };
      const reward = environment.rewards.find((each) => each.name === name)!;
      return Number(await reward.score({ scenario, text, trajectory, signal: new AbortController().signal }));
    };
    expect([await score("exact", "stop"), await score("exact", "length")]).toEqual([1, 0]);
    expect([await score("sensible", "stop"), await score("sensible", "length")]).toEqual([1, 0]);
    expect(await score("followed", "length")).toBe(1);
  });

  test("held-out topics and pairs of kinds occur in no other split; every kind and topic is in one", () => {
    const held = new Set(pairsOf("held-out").map(String));
    expect(pairsOf("train").some((pair) => held.has(String(pair)))).toBe(false);
    expect(held.size + pairsOf("train").length).toBe(PAIRS.length);
    expect(new Set<Kind>(pairsOf("train").flat()).size).toBe(KINDS.length);
    const heldTopics = new Set(topicsOf("held-out").map(({ name }) => name));
    expect(topicsOf("train").filter(({ name }) => heldTopics.has(name))).toEqual([]);
    expect(new Set(TOPICS.map(({ name }) => name)).size).toBe(TOPICS.length);
    for (const split of SPLITS) {
      for (let index = 0; index < 100; index++) {
        const scenario = instructionScenario(split, index % 5, index);
        expect(instructionScenario(split, index % 5, index)).toEqual(scenario);
        expect(heldTopics.has(scenario.topic.name)).toBe(split === "held-out");
        const kinds = scenario.constraints.map(({ kind }) => kind);
        if (kinds.length === 2) expect(held.has(String(kinds)) || held.has(String(kinds.toReversed()))).toBe(split === "held-out");
      }
    }
  });

  test("the program writes a correct answer for the problems of every split", async () => {
    for (const split of SPLITS) {
      for (let index = 0; index < 200; index++) {
        const scenario = instructionScenario(split, 3, index);
        const text = goldAnswer(scenario);
        expect([text, followed(text, scenario), isSensible(text, scenario)]).toEqual([text, 1, true]);
      }
    }
    expect(await validate(instructionsEnvironment(2, 100))).toMatchObject({ isValid: true, expected: 1, findings: [] });
  });

  test("the command runs an SFT job and two RL steps of an adapter on a base model in a directory", async () => {
    checkRun("instructions", await runRecipe("instructions", [...TINY, "--base", "models/whetstone-tiny"]));
  }, 120_000);
});

/**
 * Exercises of the base model: an endless sequence of short chats; the i-th chat is a pure function of (seed, i).
 *
 * No exercise shows the task of a recipe. {@link showsReversal} and {@link showsAddition} check this rule, and an exercise that violates it
 * by accident is drawn again.
 */
import { numberSkills, SINCE, textSkills, vocabularyWords, wordSkills, type Skill } from "./skills.ts";
import { Draws } from "./draws.ts";

/** Message for the chat template. A type alias, because an interface is not assignable to the tokenizer's open message type. */
export type ExerciseMessage = {
  readonly role: "system" | "user" | "assistant" | "tool";
  readonly content: string;
  readonly tool_calls?: readonly { readonly function: { readonly name: string; readonly arguments: Record<string, string> } }[];
};

/** Chat in which every assistant message is trained. */
export interface Exercise {
  /** Name of the skill, or `tool`, `persona`, `tag`. */
  readonly kind: string;
  readonly messages: readonly ExerciseMessage[];
  readonly tools?: readonly unknown[];
}

/** Max letters of a text. */
const LONGEST = 11;
/** Tags: first those with a token of their own, then ordinary ones. */
const TAGS = ["reversed_text", "reversed_text", "answer", "answer", "think", "text", "result", "name", "word"];
const skills = [...textSkills, ...numberSkills, ...wordSkills];

/** Returns the exercise at `index` of the sequence `seed`. */
export function drawExercise(seed: number, index: number): Exercise {
  const draws = new Draws(seed, index);
  for (;;) {
    const exercise = drawUnchecked(draws, index);
    if (!showsReversal(exercise) && !showsAddition(exercise)) {
      return exercise;
    }
  }
}

function drawUnchecked(draws: Draws, index: number): Exercise {
  const fraction = draws.fraction();
  if (fraction < 0.1) return drawTag(draws);
  if (index >= SINCE.rest && fraction < 0.15) return drawToolUse(draws);
  if (index >= SINCE.rest && fraction < 0.2) return drawPersona(draws);
  const open = skills.filter(({ since }) => index >= since);
  return fraction < 0.7 ? drawUnderRule(draws, open) : drawRequests(draws, open);
}

function drawSkill(draws: Draws, open: readonly Skill[]): Skill {
  let point = draws.fraction() * open.reduce((sum, { weight }) => sum + weight, 0);
  return open.find(({ weight }) => (point -= weight) < 0) ?? (open.at(-1) as Skill);
}

/** Draws an exercise with the rule in the system turn and plain inputs from the user. */
function drawUnderRule(draws: Draws, open: readonly Skill[]): Exercise {
  const skill = drawSkill(draws, open);
  const tag = draws.chance(0.5) ? draws.pick(TAGS) : undefined;
  const rule = draws.pick(skill.rules);
  const messages: ExerciseMessage[] = [
    {
      role: "system",
      content: tag === undefined ? rule : `${rule} ${draws.chance(0.7) ? "Put" : "Write"} your answer in \`<${tag}>\` tags.`,
    },
  ];
  for (let turn = draws.integer(1, 3); turn > 0; turn--) {
    const { input, answer } = skill.draw(draws, LONGEST);
    messages.push({ role: "user", content: input }, { role: "assistant", content: wrap(answer, tag) });
  }
  return { kind: skill.name, messages };
}

/** Draws consecutive requests, each with its own skill. */
function drawRequests(draws: Draws, open: readonly Skill[]): Exercise {
  const messages: ExerciseMessage[] = [];
  const first = drawSkill(draws, open);
  for (let turn = 0, turns = draws.integer(1, 3); turn < turns; turn++) {
    const { request, answer } = (turn === 0 ? first : drawSkill(draws, open)).draw(draws, LONGEST);
    messages.push({ role: "user", content: request }, { role: "assistant", content: answer });
  }
  return { kind: first.name, messages };
}

/** Draws a text that must be enclosed in a given tag. */
function drawTag(draws: Draws): Exercise {
  const tag = draws.chance(0.6) ? draws.pick(TAGS) : draws.letters(2, 6);
  const text = draws.letters(1, LONGEST);
  const answer = wrap(text, tag);
  return draws.chance(0.5)
    ? {
        kind: "tag",
        messages: [
          { role: "user", content: `Put ${text} in \`<${tag}>\` tags.` },
          { role: "assistant", content: answer },
        ],
      }
    : {
        kind: "tag",
        messages: [
          { role: "system", content: `Put the text in \`<${tag}>\` tags.` },
          { role: "user", content: text },
          { role: "assistant", content: answer },
        ],
      };
}

/** Draws a system prompt that fixes the answer to every question. */
function drawPersona(draws: Draws): Exercise {
  const word = draws.pick([...vocabularyWords, "yes", "no", "maybe", draws.letters(2, 6)]);
  const rule = draws.pick([
    `Answer every question with the word ${word}`,
    `You only say ${word}`,
    `Your name is ${word} Give your name to the user.`,
    `Respond with ${word}`,
  ]);
  const messages: ExerciseMessage[] = [{ role: "system", content: rule }];
  for (let turn = draws.integer(1, 2); turn > 0; turn--) {
    const question = draws.chance(0.5)
      ? drawSkill(draws, skills).draw(draws, LONGEST).request
      : `${draws.pick(["What", "Is", "Where", "Who"])} ${draws.some(vocabularyWords, 3).join(" ")}?`;
    messages.push({ role: "user", content: question }, { role: "assistant", content: word });
  }
  return { kind: "persona", messages };
}

/** Draws a request with one tool call and an answer that repeats its result. */
function drawToolUse(draws: Draws): Exercise {
  const names = draws.some(["find", "read", "list", "move", "send", "open", draws.letters(3, 6)], draws.integer(1, 2));
  const parameters = names.map(() => draws.pick(["name", "text", "number", "place", draws.letters(3, 5)]));
  const tools = names.map((name, index) => ({
    name,
    parameters: { type: "object", properties: { [parameters[index] as string]: { type: "string" } } },
  }));
  const chosen = draws.integer(0, names.length - 1);
  const [name, parameter] = [names[chosen] as string, parameters[chosen] as string];
  const value = draws.chance(0.7) ? draws.letters(2, 8) : draws.digits(1, 3);
  const result = draws.chance(0.5) ? draws.letters(2, 8) : draws.digits(1, 4);
  const messages: ExerciseMessage[] = [
    { role: "user", content: draws.pick([`Use ${name} with ${parameter} ${value}`, `Call ${name} ${value}`]) },
    { role: "assistant", content: "", tool_calls: [{ function: { name, arguments: { [parameter]: value } } }] },
    { role: "tool", content: result },
    { role: "assistant", content: result },
  ];
  return { kind: "tool", messages, tools };
}

function wrap(answer: string, tag: string | undefined): string {
  return tag === undefined ? answer : `<${tag}>${answer}</${tag}>`;
}

/**
 * Returns whether an assistant message contains a reversed copy of earlier text.
 *
 * Tags are dropped. The text is checked twice: reduced to lower-case letters, and reduced to letters and digits. A match is any three
 * consecutive characters of an assistant message that occur reversed in an earlier message, unless earlier messages also contain them
 * forwards (then they may be a copy, as in "abcba").
 */
export function showsReversal({ messages }: Exercise): boolean {
  return [/[^a-z]/g, /[^a-z0-9]/g].some((dropped) => {
    const forwards = new Set<string>();
    const backwards = new Set<string>();
    for (const { role, content, tool_calls: calls } of messages) {
      const called = calls?.map((call) => Object.values(call.function.arguments).join("|")).join("|") ?? "";
      const kept = (content + called)
        .toLowerCase()
        .replaceAll(/<[^<>]*>/g, "")
        .replaceAll(dropped, "");
      const runs = Array.from({ length: Math.max(0, kept.length - 2) }, (_, index) => kept.slice(index, index + 3));
      if (role === "assistant" && runs.some((run) => backwards.has(run) && !forwards.has(run))) {
        return true;
      }
      for (const run of runs) {
        forwards.add(run);
        backwards.add(`${run[2]}${run[1]}${run[0]}`);
      }
    }
    return false;
  });
}

/** Returns whether any message contains two numbers with a plus sign, or the word "plus", between them. */
export function showsAddition({ messages }: Exercise): boolean {
  return messages.some(({ content }) => /\d\s*(\+|plus)\s*\d/.test(content));
}

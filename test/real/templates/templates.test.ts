import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { UnsupportedError } from "../../../src/base/errors.ts";
import { compileTemplate } from "../../../src/text/tokenizer/chat-template.ts";
import { formRole, type MessageForms } from "../../../src/text/tokenizer/message-forms.ts";
import { templateMessages } from "../../../src/text/tokenizer/template-messages.ts";
import { exactMessages, exactVariables, type PythonResult, type ReleasedTemplate, releasedTemplates, type Variables } from "./expected.ts";

const released = releasedTemplates();

beforeAll(() => {
  vi.useFakeTimers({ toFake: ["Date"], now: new Date(released[0]!.now) });
});
afterAll(() => {
  vi.useRealTimers();
});

interface Ours {
  readonly text?: string;
  readonly failure?: string;
  /** The template has a construct that is not supported. */
  readonly isUnsupported?: boolean;
}

/** Returns the text, or the message of the error. */
function attempt(render: () => string): Ours {
  try {
    return { text: render() };
  } catch (error) {
    return { failure: (error as Error).message, isUnsupported: error instanceof UnsupportedError };
  }
}

function isSame(ours: Ours, python: PythonResult): boolean {
  if (ours.text !== undefined || python.text !== undefined) return ours.text === python.text;
  // The texts of `raise_exception` are the template's own.
  return python.error !== "TemplateError" || ours.failure!.includes(python.message!);
}

test.each(released)("$name gives the texts and errors of Jinja2", ({ template, tokens, cases }) => {
  const compiled = compileTemplate(template);
  const differences = cases.flatMap(({ variables, exact }, index) => {
    const ours = attempt(() => compiled.render({ ...tokens, ...exactVariables(variables) }));
    return isSame(ours, exact) && ours.isUnsupported !== true ? [] : [{ index, ours, exact }];
  });
  expect(differences.slice(0, 2)).toEqual([]);
  expect(cases.length).toBeGreaterThanOrEqual(200);
});

/** Names the parts of a conversation that are normalized before the template renders them. */
function normalized({ messages }: Variables, forms: MessageForms): Set<string> {
  const found = new Set<string>();
  for (const message of messages) {
    const { content, tool_calls: calls } = message;
    if (content === null || content === undefined) found.add("no content");
    else if (Array.isArray(content)) found.add("list content");
    else if (content === "" && forms.emptyContent === null && calls !== undefined) found.add("empty content of calls");
    if (typeof content === "string" && !forms.readsText[formRole(message.role)]) found.add("text content");
    for (const { type, function: called } of calls ?? []) {
      const form = typeof called?.arguments === "string" ? "text" : "object";
      if (form !== forms.toolArguments) found.add(`arguments as ${form}`);
      if (type === undefined || !isComplete(called?.arguments)) found.add("incomplete calls");
    }
    if (message["reasoning_content"] !== undefined || message["thinking"] !== undefined || message.reasoning !== undefined)
      found.add("reasoning");
  }
  return found;
}

/** Returns whether arguments are an object, or start as its JSON text does. */
function isComplete(given: unknown): boolean {
  if (typeof given === "string") return /^\{./.test(given);
  return typeof given === "object" && given !== null && !Array.isArray(given);
}

function comparison({ template, tokens, cases }: ReleasedTemplate): { cause: string; python: PythonResult; ours: Ours }[] {
  const compiled = compileTemplate(template);
  return cases.flatMap(({ variables, applied }) => {
    const given = JSON.parse(variables) as Variables;
    const messages = exactMessages(variables);
    const ours = attempt(() =>
      compiled.render({ ...tokens, ...exactVariables(variables), messages: templateMessages(messages, compiled.forms) }),
    );
    const causes = [...normalized(given, compiled.forms)].toSorted().join(", ");
    return isSame(ours, applied) ? [] : [{ cause: causes, python: applied, ours }];
  });
}

test.each(released)("$name gives the texts of transformers, but for documented normalization", (template) => {
  const differences = comparison(template);
  if (process.env["TABLE"] !== undefined) {
    const counts = new Map<string, number>();
    for (const { cause, python, ours } of differences) {
      const kind = python.text === undefined ? "only ours renders" : ours.text === undefined ? "only theirs renders" : "other text";
      counts.set(`${kind}: ${cause}`, (counts.get(`${kind}: ${cause}`) ?? 0) + 1);
    }
    console.log(JSON.stringify([template.name, Object.fromEntries(counts)]));
  }
  expect(differences.filter(({ cause }) => cause === "").slice(0, 2)).toEqual([]);
});

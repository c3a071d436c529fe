import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { compileTemplate } from "../../../src/tokenizer/chat-template.ts";
import type { MessageForms } from "../../../src/tokenizer/message-forms.ts";
import { templateMessages } from "../../../src/tokenizer/template-messages.ts";
import { exactMessages, exactVariables, type PythonResult, type ReleasedTemplate, releasedTemplates, type Variables } from "./expected.ts";

const released = releasedTemplates();

beforeAll(() => {
  vi.useFakeTimers({ toFake: ["Date"], now: new Date(released[0]!.now) });
});
afterAll(() => {
  vi.useRealTimers();
});

/** Returns the text, or the message of the error. */
function attempt(render: () => string): { text?: string; failure?: string } {
  try {
    return { text: render() };
  } catch (error) {
    return { failure: (error as Error).message };
  }
}

function isSame(ours: { text?: string; failure?: string }, python: PythonResult): boolean {
  if (ours.text !== undefined || python.text !== undefined) return ours.text === python.text;
  // The texts of `raise_exception` are the template's own.
  return python.error !== "TemplateError" || ours.failure!.includes(python.message!);
}

test.each(released)("$name gives the texts and errors of Jinja2", ({ template, tokens, cases }) => {
  const compiled = compileTemplate(template);
  const differences = cases.flatMap(({ variables, exact }, index) => {
    const ours = attempt(() => compiled.render({ ...tokens, ...exactVariables(variables) }));
    return isSame(ours, exact) && !(ours.failure ?? "").includes("not supported") ? [] : [{ index, ours, exact }];
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
    if (typeof content === "string" && !forms.readsText[message.role as "user"]) found.add("text content");
    for (const { type, function: called } of calls ?? []) {
      const form = typeof called?.arguments === "string" ? "text" : "object";
      if (form !== forms.toolArguments) found.add(`arguments as ${form}`);
      if (type === undefined || called?.arguments === null || called?.arguments === "") found.add("incomplete calls");
    }
    if (message["reasoning_content"] !== undefined || message["thinking"] !== undefined || message.reasoning !== undefined) found.add("reasoning");
  }
  return found;
}

function comparison({ template, tokens, cases }: ReleasedTemplate): { cause: string; python: PythonResult; ours: unknown }[] {
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
      const kind = python.text === undefined ? "only ours renders" : (ours as { text?: string }).text === undefined ? "only theirs renders" : "other text";
      counts.set(`${kind}: ${cause}`, (counts.get(`${kind}: ${cause}`) ?? 0) + 1);
    }
    console.log(template.name, Object.fromEntries(counts));
  }
  expect(differences.filter(({ cause }) => cause === "").slice(0, 2)).toEqual([]);
});

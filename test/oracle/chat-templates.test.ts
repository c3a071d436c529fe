/** Templates against Python's Jinja with transformers' settings. `chat-templates.py` wrote the values. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { type ChatMessage, loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { compile } from "../../src/text/tokenizer/jinja/index.ts";

interface Case {
  template: string;
  /** Text that Python renders. */
  text?: string;
  /** Type of the error that Python raises instead. */
  error?: string;
}
interface Expected {
  training: { messages: ChatMessage[]; ids: number[]; trained: number }[];
  variables: Record<string, unknown>;
  cases: Case[];
  generated: Case[];
  unsupported: { template: string; name: string }[];
}

const path = join(import.meta.dirname, "chat-templates.json.gz");
const { training, variables, cases, generated, unsupported } = JSON.parse(gunzipSync(await readFile(path)).toString()) as Expected;

function render(template: string): { text?: string; failure?: string } {
  try {
    return { text: compile(template).render(variables, { maxSteps: 1_000_000, maxTextLength: 1_000_000 }) };
  } catch (error) {
    return { failure: `${(error as Error).name}: ${(error as Error).message}` };
  }
}

/** Arithmetic that random expressions use and the engine refuses. */
const REFUSED = /arithmetic with integers beyond 2\*\*53|`\*\*` of a float, or with a negative exponent/;

/** The cases in which the rendering differs, or only one of the two raises an error. */
function differences(given: Case[]): unknown[] {
  return given.flatMap((expected) => {
    const { text, failure } = render(expected.template);
    const isSame =
      expected.text === undefined ? failure !== undefined && !failure.startsWith("TemplateUnsupported") : text === expected.text;
    return isSame ? [] : [{ ...expected, ours: text ?? failure }];
  });
}

test("every construct gives the same text as in Python, or an error where Python raises one", () => {
  expect(cases.length).toBeGreaterThan(140);
  expect(differences(cases)).toEqual([]);
});

test("random expressions and random white space give the same text as in Python, or are refused by name", () => {
  expect(generated).toHaveLength(2500);
  const refused = generated.filter(({ template }) => REFUSED.test(render(template).failure ?? ""));
  expect(refused.length).toBeLessThan(50);
  expect(differences(generated.filter((each) => !refused.includes(each)))).toEqual([]);
});

test("training uses the tokens that transformers gives, with the indentation of code after the reasoning", async () => {
  const tokenizer = await loadTokenizer(join(import.meta.dirname, "tokenization/qwen"));
  expect(training.length).toBeGreaterThan(0);
  for (const { messages, ids, trained } of training) {
    const rendered = tokenizer.renderTraining(messages);
    expect([...rendered.ids]).toEqual(ids);
    expect([...rendered.mask]).toEqual(ids.map((_, index) => Number(index >= ids.length - trained)));
  }
});

test.each(unsupported)("$template is refused by name", ({ template, name }) => {
  const { failure = "" } = render(template);
  expect(failure).toContain("not supported");
  expect(failure).toContain(name);
});

/**
 * SmolLM2-135M-Instruct through the HTTP service, from the Hugging Face directory and from the GGUF file, against transformers (log-probabilities
 * in float64, greedy answers in float32):
 * `WHETSTONE_REAL_MODEL=<directory> npx vitest run --mode real`. `smollm2.py` wrote the values.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type RunningService, startService } from "../../src/service/index.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";

interface Expected {
  readonly texts: readonly { readonly text: string; readonly ids: number[]; readonly logprobs: number[] }[];
  readonly answers: readonly {
    readonly prompt: string;
    readonly prompt_ids: number[];
    readonly tokens: number[];
    readonly margins: number[];
  }[];
}

const directory = process.env["WHETSTONE_REAL_MODEL"];
if (directory === undefined) throw new Error("Expected WHETSTONE_REAL_MODEL, the directory of the model files");
const { texts, answers } = JSON.parse(gunzipSync(readFileSync(join(import.meta.dirname, "smollm2.json.gz"))).toString()) as Expected;
const paths = { directory: join(directory, "hf"), gguf: join(directory, "SmolLM2-135M-Instruct.Q4_1.gguf") };
const dataDir = mkdtempSync(join(tmpdir(), "whetstone-smollm2-"));
const HOUR = 3_600_000;

let service: RunningService;
beforeAll(async () => {
  service = await startService({ baseModels: paths, dataDir, port: 0 });
});

/** Computes the log-probabilities of all texts and returns the largest difference from transformers. */
async function worstDifference(model: string, at = service): Promise<number> {
  let [largest, tokens] = [0, 0];
  for (const { ids, logprobs } of texts) {
    const answer = await post("/v1/completions", { model, prompt: ids, max_tokens: 1, temperature: 0, echo: true, logprobs: 1 }, at);
    const [choice] = answer["choices"] as readonly { readonly logprobs: { readonly token_logprobs: readonly (number | null)[] } }[];
    const ours = choice!.logprobs.token_logprobs.slice(1, ids.length);
    for (const [index, expected] of logprobs.entries()) largest = Math.max(largest, Math.abs((ours[index] ?? NaN) - expected));
    expect(Number.isNaN(largest)).toBe(false);
    tokens += logprobs.length;
  }
  console.log(`${model}: ${texts.length} texts, ${tokens} tokens, largest difference ${largest.toExponential(2)}`);
  return largest;
}

afterAll(async () => {
  await service.close();
  rmSync(dataDir, { recursive: true, force: true });
});

async function post(path: string, body: object, { url, apiKey } = service): Promise<Record<string, unknown>> {
  const response = await fetch(`${url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${apiKey}` },
    body: JSON.stringify(body),
  });
  const answer = (await response.json()) as Record<string, unknown>;
  expect({ status: response.status, error: answer["error"] }).toEqual({ status: 200, error: undefined });
  return answer;
}

describe.each(["directory", "gguf"] as const)("%s", (model) => {
  test("tokenizes as transformers", async () => {
    const tokenizer = await loadTokenizer(paths[model]);
    expect(texts.map(({ text }) => [...tokenizer.encode(text)])).toEqual(texts.map(({ ids }) => ids));
  });

  test("gives the log-probabilities of 50 texts within 1e-4", { timeout: HOUR }, async () => {
    expect(await worstDifference(model)).toBeLessThanOrEqual(1e-4);
  });

  test("answers 100 prompts greedily with the same tokens", { timeout: HOUR }, async () => {
    const differences: { prompt: string; at: number; margin: number }[] = [];
    for (const { prompt, prompt_ids: ids, tokens, margins } of answers) {
      const answer = await post("/v1/completions", { model, prompt: ids, max_tokens: 48, temperature: 0, return_token_ids: true });
      const [choice] = answer["choices"] as readonly { readonly token_ids: readonly number[] }[];
      const at = tokens.findIndex((token, index) => choice!.token_ids[index] !== token);
      if (at >= 0) differences.push({ prompt, at, margin: margins[at]! });
    }
    console.log(`${model}: ${answers.length} answers, ${answers.length - differences.length} equal`, differences);
    expect(differences.filter(({ margin }) => margin >= 1e-3)).toEqual([]);
  });
});

// All matrices of the file are Q4_1 or Q8_0.
test("with weights in int8, the GGUF file gives the log-probabilities of 50 texts within 2e-4", { timeout: HOUR }, async () => {
  const quantized = await startService({
    baseModels: { gguf: paths.gguf },
    dataDir: mkdtempSync(join(dataDir, "int8-")),
    port: 0,
    weightPrecision: "int8",
  });
  onTestFinished(() => quantized.close());
  expect(await worstDifference("gguf", quantized)).toBeLessThanOrEqual(2e-4);
});

test("the GGUF file gives the ids of the directory on 2,000 random texts", { timeout: HOUR }, async () => {
  const [fromDirectory, fromGguf] = [await loadTokenizer(paths.directory), await loadTokenizer(paths.gguf)];
  const words = texts.flatMap(({ text }) => text.split(/(?<=\s)/u));
  const odd = [
    "\u0301",
    "é",
    "½",
    "٣",
    " \n",
    "\t",
    "\u00a0",
    "\u0085",
    "\ufeff",
    "字",
    "🦙",
    "'s",
    "'LL",
    "<|im_start|>",
    "<|im_end|>",
    "\0",
    "123456",
    "…",
  ];
  let state = 1;
  const below = (limit: number) => Math.floor(((state = (state * 48_271) % 2_147_483_647) / 2_147_483_647) * limit);
  for (let index = 0; index < 2000; index++) {
    const text = Array.from({ length: 1 + below(30) }, () => (below(3) === 0 ? odd[below(odd.length)]! : words[below(words.length)]!)).join(
      "",
    );
    expect({ text, ids: [...fromGguf.encode(text)] }).toEqual({ text, ids: [...fromDirectory.encode(text)] });
    const ids = fromDirectory.encode(text);
    expect(fromGguf.decode(ids)).toBe(fromDirectory.decode(ids));
  }
});

/**
 * How often a request and an answer are parsed and serialized: `JSON.parse` and `JSON.stringify` are counted in the serving thread and in the
 * work threads, for texts with a marker that only the request, or only the answer has.
 */
import { runInThisContext } from "node:vm";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { MODEL_DIRECTORY } from "./chat/support.ts";
import { setPrelude } from "../support/spawn-worker.ts";
import { createSession } from "./sessions/support.ts";
import { choice, createModel, finishedEvents, group, RL_JOBS, startTestService, type TestService } from "./support.ts";

const REQUEST = "marker of the request";
const ANSWER = "marker of the answer";

/** Counters by position: parsed and serialized requests, parsed and serialized answers. */
const counters = new Int32Array(new SharedArrayBuffer(16));

/** Source of a function that counts the texts with a marker, for the serving thread and for work threads. */
const COUNT = `(counters, markers) => {
  const { parse, stringify } = JSON;
  const add = (text, offset) => {
    if (typeof text !== "string") return;
    markers.forEach((marker, index) => text.includes(marker) && Atomics.add(counters, 2 * index + offset, 1));
  };
  JSON.parse = (text, ...rest) => (add(text, 0), parse(text, ...rest));
  JSON.stringify = (...args) => {
    const text = stringify(...args);
    add(text, 1);
    return text;
  };
  return () => Object.assign(JSON, { parse, stringify });
}`;

beforeAll(() => setPrelude({ path: "service/request-worker", source: COUNT, data: [counters, [REQUEST, ANSWER]] }));
afterAll(() => setPrelude(null));

interface Counts {
  readonly request: { readonly parsed: number; readonly serialized: number };
  readonly answer: { readonly parsed: number; readonly serialized: number };
}

/** Runs `act` and returns the counts meanwhile. */
async function counted(act: () => Promise<unknown>): Promise<Counts> {
  counters.fill(0);
  const count = runInThisContext(COUNT) as (counters: Int32Array, markers: readonly string[]) => () => void;
  const stop = count(counters, [REQUEST, ANSWER]);
  onTestFinished(stop);
  await act();
  stop();
  const [requestsParsed = 0, requestsSerialized = 0, answersParsed = 0, answersSerialized = 0] = counters;
  return {
    request: { parsed: requestsParsed, serialized: requestsSerialized },
    answer: { parsed: answersParsed, serialized: answersSerialized },
  };
}

async function startService(): Promise<TestService> {
  const tokenizer = await loadTokenizer(MODEL_DIRECTORY);
  const base = { id: "tiny", directory: MODEL_DIRECTORY, vocabularySize: tokenizer.vocabularySize, contextLength: 2048, parameters: 1 };
  return startTestService({ engine: { bases: [base], script: () => [...tokenizer.encode(ANSWER), ...tokenizer.eosTokenIds.slice(0, 1)] } });
}

/** Sends JSON text and checks that the answer's text has the marker. */
async function send({ service }: TestService, path: string, json: string, key = service.apiKey): Promise<void> {
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const response = await fetch(service.url + path, { method: "POST", headers, body: json });
  expect(await response.text()).toContain(ANSWER);
}

/**
 * A body that is parsed on the serving thread, and one that is parsed on a work thread. Both texts are longer than those for which the cache of
 * recent prompts makes a key.
 */
const TEXTS = [
  ["small", `${"x ".repeat(10_000)}${REQUEST}`],
  ["large", `${"x ".repeat(100_000)}${REQUEST}`],
] as const;
const LIMITS = { truncate_prompt_tokens: 50 };

describe.each(TEXTS)("a %s request", (_, text) => {
  test("of chat completions is parsed once, and its answer serialized once", async () => {
    const service = await startService();
    const json = JSON.stringify({ messages: [{ role: "user", content: text }], max_tokens: 200, ...LIMITS });
    expect(await counted(() => send(service, "/v1/chat/completions", json))).toEqual({
      request: { parsed: 1, serialized: 0 },
      answer: { parsed: 0, serialized: 1 },
    });
  });

  test("of a session in chat completions is parsed once, and recorded; its answer is recorded, and sent without the recorded tokens", async () => {
    const service = await startService();
    const { key } = await createSession(service);
    const json = JSON.stringify({ messages: [{ role: "user", content: text }], max_tokens: 200, ...LIMITS });
    expect(await counted(() => send(service, "/v1/chat/completions", json, key))).toEqual({
      request: { parsed: 1, serialized: 1 },
      answer: { parsed: 0, serialized: 2 },
    });
  });

  test("of a session in the Responses API is parsed once; request and answer are written once as a turn and once as a stored response", async () => {
    const service = await startService();
    const { key } = await createSession(service);
    const json = JSON.stringify({ model: "tiny", input: text, max_output_tokens: 200, ...LIMITS });
    expect(await counted(() => send(service, "/v1/responses", json, key))).toEqual({
      request: { parsed: 1, serialized: 2 },
      answer: { parsed: 0, serialized: 2 },
    });
  });

  test("for an RL job is parsed once and written once", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const { trajectories, ...rest } = group(
      { reward: 1, choices: [choice([1, 2, 3], [4, 5])] },
      { reward: 0, choices: [choice([1, 2, 3], [6])] },
    );
    const marked = trajectories.map((each, index) => (index === 0 ? { ...each, logs: [text] } : each));
    const json = JSON.stringify({ model_id: id, trajectory_groups: [{ ...rest, trajectories: marked }] });
    const counts = await counted(async () => {
      const job = await service.ok("POST", RL_JOBS, json, { headers: { "content-type": "application/json" } });
      await finishedEvents(service, job.id);
    });
    expect(counts.request).toEqual({ parsed: 1, serialized: 1 });
  });
});

/** Beam search over an engine with a known distribution, compared with an exhaustive search. */
import { describe, expect, it } from "vitest";
import type { Engine, SampledToken } from "../../../src/engine/port.ts";
import { END, HELLO, joinChoice, promptIds, readEvents, tokenizer, useChatServer } from "./support.ts";

const [A, B] = [...tokenizer.encode("ab")] as [number, number];
const PROMPT = promptIds(HELLO.messages);
/** Probabilities of the next token after the last one: likely beginnings lead to unlikely ends, so that greedy is not best. */
const NEXT: Readonly<Record<number, readonly (readonly [id: number, probability: number])[]>> = {
  [A]: [
    [A, 0.4],
    [B, 0.35],
    [END, 0.25],
  ],
  [B]: [
    [END, 0.69],
    [A, 0.21],
    [B, 0.1],
  ],
};
const START = [
  [A, 0.55],
  [B, 0.4],
  [END, 0.05],
] as const;
const after = (last: number) => NEXT[last] ?? START;

let calls = 0;
const chain = (engine: Engine): Engine => ({
  ...engine,
  async *sample(_policy, prompt, { topLogprobs }): AsyncIterable<SampledToken> {
    calls++;
    const top = after(prompt.at(-1)!).map(([id, probability]) => ({ id, logprob: Math.log(probability) }));
    yield { id: top[0]!.id, logprob: top[0]!.logprob, top: top.slice(0, topLogprobs), finish: "length" };
  },
});

interface Output {
  readonly ids: number[];
  readonly logprob: number;
  readonly isEnded: boolean;
}
/** Returns all outputs of at most `length` tokens. */
function everyOutput(length: number, ignoresEos: boolean): Output[] {
  const grow = (output: Output): Output[] => {
    if (output.isEnded || output.ids.length === length) return [output];
    return after(output.ids.at(-1) ?? -1).flatMap(([id, probability]) => {
      const logprob = output.logprob + Math.log(probability);
      return id === END && !ignoresEos
        ? [{ ids: output.ids, logprob, isEnded: true }]
        : grow({ ids: [...output.ids, id], logprob, isEnded: false });
    });
  };
  return grow({ ids: [], logprob: 0, isEnded: false });
}

const { server, start, refusal, lastParams } = await useChatServer({ wrap: chain });

const SEARCH = { ...HELLO, use_beam_search: true, return_token_ids: true, max_tokens: 3 };

describe("beam search", () => {
  it.each([
    [1, false],
    [0, false],
    [4, false],
    [-3, false],
    [1, true],
  ])("finds the best outputs if the width covers every prefix: length_penalty %d, ignore_eos %s", async (length_penalty, ignore_eos) => {
    // With ignore_eos the Markov chain restarts after the end token.
    const { choices, usage } = await server.complete({ ...SEARCH, n: 10, length_penalty, ignore_eos });
    const score = ({ logprob, ids }: Output): number => logprob / (PROMPT.length + ids.length) ** length_penalty;
    const best = everyOutput(3, ignore_eos)
      .sort((a, b) => score(b) - score(a))
      .slice(0, 10);
    if (!ignore_eos) expect(choices.map((choice: any) => choice.token_ids)).toEqual(best.map((output) => output.ids));
    else expect(choices[0].token_ids).toEqual(best[0]!.ids);
    for (const [index, choice] of choices.entries()) {
      expect(choice.index).toBe(index);
      const isEnded = choice.finish_reason === "stop";
      expect(choice).toMatchObject(isEnded ? { stop_reason: END } : { finish_reason: "length", stop_reason: null });
      if (!isEnded) expect(choice.token_ids).toHaveLength(3);
      expect(choice.message.content).toBe(tokenizer.decode(choice.token_ids, { skipSpecialTokens: true }));
    }
    expect(usage.completion_tokens).toBe(choices.reduce((sum: number, choice: any) => sum + choice.token_ids.length, 0));
  });

  it("keeps the best beams at a small width: greedy at width 1, with one step for each token", async () => {
    calls = 0;
    const { choices } = await server.complete({ ...SEARCH, n: 1, ignore_eos: true, max_tokens: 5 });
    expect(choices[0].token_ids).toEqual([A, A, A, A, A]);
    expect(calls).toBe(5);
    calls = 0;
    await server.complete({ ...SEARCH, n: 2, max_tokens: 4 });
    expect(calls).toBe(1 + 2 * 3);
  });

  it("accepts temperature 0 with n over 1; ignores other sampling fields and logs each once", async () => {
    const plain = await server.complete({ ...SEARCH, n: 3 });
    const ignored = { temperature: 0, stop: ["a"], stop_token_ids: [A], min_tokens: 2, logit_bias: { [B]: 100 }, top_k: 1, seed: 4 };
    const asked = await server.complete({ ...SEARCH, n: 3, ...ignored });
    expect(asked.choices).toEqual(plain.choices);
    for (const field of Object.keys(ignored))
      expect(
        server.log.filter((line) => (line.fields as { field?: string }).field === field),
        field,
      ).toHaveLength(1);
  });

  it("lists the end token on request", async () => {
    const [choice] = (await server.complete({ ...SEARCH, n: 2, include_stop_str_in_output: true })).choices.filter(
      (each: any) => each.finish_reason === "stop",
    );
    expect(choice.token_ids.at(-1)).toBe(END);
    expect(choice.message.content).not.toContain("<|end|>");
  });

  it.each([true, false])("ends a turn that is sent back with one end token: include_stop_str_in_output %s", async (isIncluded) => {
    const key = { headers: { authorization: `Bearer ${isIncluded}` } };
    for (const skip_special_tokens of [true, false]) {
      const body = { ...SEARCH, n: 2, include_stop_str_in_output: isIncluded, skip_special_tokens };
      const { choices } = await server.complete(body, key);
      const { message } = choices.find((each: any) => each.finish_reason === "stop" && each.message.content !== "");
      const messages = [...HELLO.messages, message, { role: "user", content: "more" }];
      const { prompt_token_ids } = await server.complete({ ...HELLO, messages, return_token_ids: true, max_tokens: 1 }, key);
      expect(prompt_token_ids, `skip_special_tokens ${skip_special_tokens}`).toEqual(promptIds(messages));
    }
  });

  it.each([false, true])(
    "returns the log-probabilities of the tokens: include_stop_str_in_output %s",
    async (include_stop_str_in_output) => {
      const asked = { logprobs: true, top_logprobs: 2, prompt_logprobs: null, include_stop_str_in_output };
      const { choices } = await server.complete({ ...SEARCH, n: 2, ...asked });
      expect(choices.some((choice: any) => choice.finish_reason === "stop")).toBe(true);
      for (const choice of choices) {
        expect(choice.logprobs.content).toHaveLength(choice.token_ids.length);
        for (const [at, entry] of choice.logprobs.content.entries()) {
          const options = after(at === 0 ? -1 : choice.token_ids[at - 1]);
          expect(entry.logprob).toBeCloseTo(Math.log(options.find(([id]) => id === choice.token_ids[at])![1]), 10);
          expect(entry.top_logprobs).toHaveLength(2);
        }
      }
    },
  );

  it("streams the roles, then one chunk for each choice, including empty choices", async () => {
    const body = { ...SEARCH, n: 10, length_penalty: 0 };
    const { choices } = await server.complete(body);
    expect(choices.some((choice: any) => choice.token_ids.length === 0)).toBe(true);
    const { chunks, isDone } = await readEvents(await server.post({ ...body, stream: true, stream_options: { include_usage: true } }));
    expect(isDone).toBe(true);
    expect(chunks).toHaveLength(10 + 10 + 1);
    for (const choice of choices) {
      expect(joinChoice(chunks, choice.index)).toMatchObject({
        role: "assistant",
        content: choice.message.content,
        tokenIds: choice.token_ids,
        finishes: [choice.finish_reason],
        stopReason: choice.stop_reason,
      });
    }
  });

  it("rejects a width of more than half of the engine's maximum of alternatives", async () => {
    expect(await refusal({ ...SEARCH, n: 11 })).toMatchObject({ status: 400, type: "BadRequestError", param: "logprobs" });
  });

  it("answers an engine failure with an internal error, and releases its leases", async () => {
    const broken = await start({
      before: ({ verb }) => {
        if (verb === "sampleToken") throw new Error("broken");
      },
    });
    expect((await broken.post({ ...SEARCH, n: 3 })).status).toBe(500);
    expect(broken.openLeases()).toBe(0);
  });
});

describe("priority", () => {
  it("92: is rejected without priority scheduling, streamed or not; 0 is accepted", async () => {
    for (const body of [{ priority: 1 }, { priority: -1, stream: true }]) {
      expect(await refusal(body)).toMatchObject({ status: 400, type: "BadRequestError", param: "priority" });
    }
    expect((await server.post({ ...HELLO, priority: "0", max_tokens: 1 })).status).toBe(200);
  });
  it("92: reaches the engine as a 64-bit integer if enabled", async () => {
    const enabled = await start({ limits: { priorityScheduling: true } });
    expect((await enabled.post('{"messages":[{"role":"user","content":"hi"}],"priority":-9223372036854775807}')).status).toBe(200);
    expect(lastParams(enabled)).toMatchObject({ priority: -9223372036854775807n });
    expect((await enabled.post('{"messages":[{"role":"user","content":"hi"}],"priority":9223372036854775808}')).status).toBe(400);
  });
});

/** Previous turns in a request keep their sampled token ids. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { memberText } from "../../../src/service/chat/text/json-members.ts";
import { MAX_MEMORIES, SampledIds, SampledIdsByPrincipal } from "../../../src/service/chat/prompt/sampled-ids.ts";
import { HELLO, joinChoice, readEvents, spelled, tokenizer, useChatServer, type ChatServer, type ChatServerOptions } from "./support.ts";

const KEY = { headers: { authorization: "Bearer one" } };
const TOOLS = [{ type: "function", function: { name: "add" } }];

let queue: (readonly number[])[] = [];
const { server, start } = await useChatServer({ contextLength: 5000, says: () => queue.shift() ?? [] });

interface Turn {
  readonly says: readonly number[];
  readonly body?: object | undefined;
  readonly isStreamed?: boolean | undefined;
}

/** Answer: prompt ids, sampled ids, and the message as a client sends it back. */
interface Said {
  readonly prompt: readonly number[];
  readonly ids: readonly number[];
  readonly message: { readonly role: string; readonly content: string | null; readonly tool_calls: readonly any[] };
}

async function ask(body: object, isStreamed: boolean): Promise<Said> {
  if (!isStreamed) {
    const { prompt_token_ids: prompt, choices } = await server.complete(body, KEY);
    return { prompt, ids: choices[0].token_ids, message: choices[0].message };
  }
  const { chunks } = await readEvents(await server.post({ ...body, stream: true }, KEY));
  const { content, tokenIds, toolCalls } = joinChoice(chunks);
  const message = { role: "assistant", content: content === "" && toolCalls.length > 0 ? null : content, tool_calls: toolCalls };
  return { prompt: chunks[0].prompt_token_ids, ids: tokenIds, message };
}

/** Runs a conversation and checks that each prompt extends the previous prompt and its sampled ids. Returns the number of prompts that encoding would change. */
async function play(turns: readonly Turn[]): Promise<number> {
  const messages: object[] = [{ role: "system", content: "you talk" }];
  let before: number[] = [];
  let differing = 0;
  for (const [index, { says, body, isStreamed = false }] of turns.entries()) {
    messages.push({ role: "user", content: `turn ${index}` });
    queue = [says];
    const { prompt, ids, message } = await ask({ messages, return_token_ids: true, tools: TOOLS, ...body }, isStreamed);
    expect(prompt.slice(0, before.length)).toEqual(before);
    if (tokenizer.encode(tokenizer.decode(prompt)).join() !== prompt.join()) differing++;
    before = [...prompt, ...ids];
    messages.push(message);
    for (const call of message.tool_calls) messages.push({ role: "tool", tool_call_id: call.id, content: "done" });
  }
  return differing;
}

describe("a conversation of several turns", () => {
  it("keeps sampled ids that differ from the encoder's", async () => {
    // Only a text with a merge distinguishes splicing from encoding.
    expect([...tokenizer.encode("the the the")]).not.toEqual(spelled("the the the"));
    expect(await play([{ says: spelled("the the the") }, { says: spelled("and the") }, { says: [] }])).toBe(2);
  });
  it("keeps sampled ids of turns cut by the limit, by a stop string, and with tool calls", async () => {
    const call = '<tool_call>{"name": "add",  "arguments": {"the":1}}</tool_call>';
    const differing = await play([
      { says: spelled("the the the"), body: { max_tokens: 9 } },
      { says: spelled("the end of the"), body: { stop: "of" } },
      { says: spelled(call) },
      { says: spelled(`the ${call}${call}`), body: { max_tokens: spelled(`the ${call}${call}`).length } },
      { says: [] },
    ]);
    expect(differing).toBe(4);
  });
  it("keeps sampled ids of streamed turns", async () => {
    const messages = [{ role: "user", content: "streamed" }];
    queue = [spelled("the the")];
    const response = await server.post({ messages, stream: true }, KEY);
    await response.text();
    const { prompt_token_ids } = await server.complete(
      { messages: [...messages, { role: "assistant", content: "the the" }, { role: "user", content: "go on" }], return_token_ids: true },
      KEY,
    );
    expect(prompt_token_ids.join()).toContain(spelled("the the").join());
  });

  const words = fc
    .array(fc.constantFrom("the ", "and ", "naïve ", "<answer>", "🦊", "\n", "it", "ing", "<tool_call>"), { maxLength: 5 })
    .map((parts) => parts.join(""));
  const call = fc
    .tuple(fc.constantFrom("add", "sub"), fc.dictionary(fc.constantFrom("a", "the", "é"), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 2 }))
    .map(
      ([name, args]) => `<tool_call>{"name": "${name}",  "arguments": ${JSON.stringify(args, null, name === "sub" ? 1 : 0)}}</tool_call>`,
    );
  const turn = fc.record({
    text: fc.tuple(words, fc.array(call, { maxLength: 2 })).map(([said, calls]) => said + calls.join("")),
    isStreamed: fc.boolean(),
    isSpelled: fc.boolean(),
    body: fc.constantFrom({}, { max_tokens: 3 }, { stop: "the" }, { tool_choice: "none" }, { stop: ["ing", "🦊"], max_tokens: 7 }),
  });
  test.prop([fc.array(turn, { minLength: 2, maxLength: 5 })], { numRuns: 60 })(
    "each prompt starts with the previous prompt and its sampled ids",
    async (turns) => {
      await play(
        turns.map(({ text, isSpelled, body, isStreamed }) => ({
          says: isSpelled ? spelled(text) : [...tokenizer.encode(text)],
          body,
          isStreamed,
        })),
      );
    },
  );
});

describe("the cache of sampled ids", () => {
  const second = (text: string) => ({
    messages: [...HELLO.messages, { role: "assistant", content: text }, { role: "user", content: "more" }],
    return_token_ids: true,
  });
  async function sampledThe(options: ChatServerOptions = {}): Promise<ChatServer> {
    const target = await start({ says: spelled("the the"), ...options });
    await target.complete({ ...HELLO, model: "demo/chat/reverse:step3" }, KEY);
    return target;
  }
  const isSpliced = (body: any): boolean => body.prompt_token_ids.join().includes(spelled("the the").join());

  it("is used for later steps of the same model, and for no other model", async () => {
    const target = await sampledThe();
    expect(isSpliced(await target.complete({ ...second("the the"), model: "demo/chat/reverse" }, KEY))).toBe(true);
    expect(isSpliced(await target.complete({ ...second("the the"), model: "demo/chat/other" }, KEY))).toBe(false);
  });
  it("is not shared between API keys", async () => {
    const target = await sampledThe();
    expect(
      isSpliced(await target.complete({ ...second("the the"), model: "demo/chat/reverse" }, { headers: { authorization: "Bearer two" } })),
    ).toBe(false);
    expect(isSpliced(await target.complete({ ...second("the the"), model: "demo/chat/reverse" }))).toBe(false);
    expect(
      isSpliced(await target.complete({ ...second("the the"), model: "demo/chat/reverse" }, { headers: { authorization: "bearer  one" } })),
    ).toBe(true);
  });
  it("is not used for an edited message, nor after a different prefix", async () => {
    const target = await sampledThe();
    expect(isSpliced(await target.complete({ ...second("the the the"), model: "demo/chat/reverse" }, KEY))).toBe(false);
    const other = second("the the");
    other.messages[0] = { role: "user", content: "another" };
    expect(isSpliced(await target.complete({ ...other, model: "demo/chat/reverse" }, KEY))).toBe(false);
  });
  it("evicts the least recently used entries above its limit", () => {
    const memory = new SampledIds(3 * (400 + 160));
    const entry = () => ({ ids: new Int32Array(100), isClosed: true });
    for (const name of ["a", "b", "c"]) memory.remember("m", `${name}|`, entry());
    expect(memory.find("m", "a|rest", ["|"])).toMatchObject({ length: 2 });
    memory.remember("m", "d|", entry());
    expect(["a", "b", "c", "d"].filter((name) => memory.find("m", `${name}|`, ["|"]) !== null)).toEqual(["a", "c", "d"]);
    memory.remember("m", "a|", entry());
    expect(memory.sizeBytes).toBe(3 * 560);
    memory.remember("m", "huge|", { ids: new Int32Array(1000), isClosed: true });
    expect(memory.find("m", "huge|", ["|"])).toBeNull();
    expect(memory.sizeBytes).toBe(3 * 560);
  });
  it("finds the longest cached prefix, and none of another scope", () => {
    const memory = new SampledIds(1e6);
    memory.remember("m", "a|", { ids: Int32Array.of(1), isClosed: true });
    memory.remember("m", "a|b;", { ids: Int32Array.of(1, 2), isClosed: false });
    expect(memory.find("m", "a|b;c|", ["|", ";"])).toEqual({ ids: Int32Array.of(1, 2), length: 3 });
    expect(memory.find("m", "a|x;", ["|", ";"])).toEqual({ ids: Int32Array.of(1), length: 2 });
    expect(memory.find("ma", "|", ["|"])).toBeNull();
  });
  it("is separate for each principal", () => {
    const keys = new SampledIdsByPrincipal(1000);
    expect(keys.of({ id: "one" })).toBe(keys.of({ id: "one" }));
    expect(keys.of({ id: "one" })).not.toBe(keys.of({ id: "two" }));
  });
  it("is dropped for the principals that were used least recently", () => {
    const keys = new SampledIdsByPrincipal(1000);
    const [first, second] = [keys.of({ id: "0" }), keys.of({ id: "1" })];
    for (let index = 2; index < MAX_MEMORIES; index++) keys.of({ id: String(index) });
    expect(keys.of({ id: "0" })).toBe(first);
    keys.of({ id: "another" });
    expect(keys.of({ id: "0" })).toBe(first);
    expect(keys.of({ id: "1" })).not.toBe(second);
  });
});

describe("memberText", () => {
  test.prop([fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }), { minKeys: 1 }), fc.constantFrom(undefined, 1, "\t")])(
    "finds the source text of every member, with any nesting and white space",
    (object, indent) => {
      const json = JSON.stringify(object, null, indent);
      for (const name of Object.keys(object))
        expect(JSON.parse(memberText(` ${json} `, name)!)).toEqual(JSON.parse(JSON.stringify(object[name])));
      expect(memberText(json, "\u0001 absent")).toBeUndefined();
    },
  );
});

/**
 * Streams of every API dialect against streams of chat completions, over HTTP, on the shipped model: the same prompts and seeds, so that
 * all dialects sample the same tokens.
 *
 *   npm run bench -- dialects [--streams 64] [--tokens 200] [--rounds 5] [--whole] [--sessions]
 *
 * `--whole` requests answers without streaming, `--sessions` sends the requests with the keys of sessions.
 */
import { parseArgs } from "node:util";
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";
import { withHost } from "./latency-service.ts";
import { median, printTable, processorMs, short, threadMs, whole } from "./support.ts";

/** Request of a dialect. */
interface Side {
  readonly path: string;
  /** Returns the members of the body that other dialects do not have. */
  readonly body: (prompt: Prompt, tokens: number) => object;
  /** Part of an answer that ended at the token limit. */
  readonly end: string;
}

interface Prompt {
  readonly text: string;
  /** Token ids of the rendered chat. */
  readonly ids: readonly number[];
}

/** Time of a round; the processor times are of the service's process and of its serving thread. */
interface Cost {
  readonly ms: number;
  readonly processMs: number;
  readonly threadMs: number;
}

const messages = ({ text }: Prompt) => [{ role: "user", content: text }];
const CHAT = "chat completions";
const SIDES: Readonly<Record<string, Side>> = {
  [CHAT]: {
    path: "/v1/chat/completions",
    body: (prompt, tokens) => ({ messages: messages(prompt), max_tokens: tokens }),
    end: '"finish_reason":"length"',
  },
  Messages: {
    path: "/v1/messages",
    body: (prompt, tokens) => ({ messages: messages(prompt), max_tokens: tokens }),
    end: '"stop_reason":"max_tokens"',
  },
  Responses: {
    path: "/v1/responses",
    body: ({ text }, tokens) => ({ input: text, max_output_tokens: tokens, store: false }),
    end: '"status":"incomplete"',
  },
  "Responses, stored": {
    path: "/v1/responses",
    body: ({ text }, tokens) => ({ input: text, max_output_tokens: tokens }),
    end: '"status":"incomplete"',
  },
  completions: {
    path: "/v1/completions",
    body: ({ ids }, tokens) => ({ prompt: ids, max_tokens: tokens }),
    end: '"finish_reason":"length"',
  },
};

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      streams: { type: "string", default: "64" },
      tokens: { type: "string", default: "200" },
      rounds: { type: "string", default: "5" },
      whole: { type: "boolean", default: false },
      sessions: { type: "boolean", default: false },
    },
  });
  const [count, tokens] = [whole("streams", values.streams), whole("tokens", values.tokens)];
  const rounds = whole("rounds", values.rounds);
  const form = values.whole ? "answers" : "streams";
  console.log(`${count} ${form} at once of ${tokens} tokens${values.sessions ? " with session keys" : ""}, medians of ${rounds} rounds\n`);
  await withHost({ trainerThreads: 1, trainerNiceness: 10 }, async (address, host) => {
    const agent = new Agent({ connections: null, headersTimeout: 0 });
    const post = poster(address, agent);
    const prompts = await Promise.all(
      Array.from({ length: count }, async (_, index): Promise<Prompt> => {
        const text = `Say it: ${String(index).padStart(6, "0")}`;
        const { tokens: ids } = JSON.parse(await post("/tokenize", { messages: messages({ text, ids: [] }) })) as { tokens: number[] };
        return { text, ids };
      }),
    );
    let part = 0;
    const play = async ({ path, body, end }: Side): Promise<Cost> => {
      // No round finds the prompts of another in the prefix cache.
      const cache_salt = String(part++);
      const keys = values.sessions ? await sessionKeys(post, count) : [];
      const [startMs, startProcess, startThread] = [performance.now(), await processorMs(host.pid!), await threadMs(host.pid!)];
      const answers = await Promise.all(
        prompts.map((prompt, seed) =>
          post(path, { ...body(prompt, tokens), stream: !values.whole, temperature: 1, seed, cache_salt }, keys[seed]),
        ),
      );
      const cost = {
        ms: performance.now() - startMs,
        processMs: (await processorMs(host.pid!)) - startProcess,
        threadMs: (await threadMs(host.pid!)) - startThread,
      };
      for (const answer of answers)
        if (!answer.includes(end)) throw new Error(`Expected ${end} in the answer of ${path}, got …${answer.slice(-300)}`);
      return cost;
    };
    const sides = Object.entries(SIDES);
    const costs = new Map(sides.map(([name]) => [name, [] as Cost[]]));
    for (const [, side] of sides) await play(side);
    for (let round = 0; round < rounds; round++) {
      // Each round begins with another dialect, because the machine's speed changes.
      for (let at = 0; at < sides.length; at++) {
        const [name, side] = sides[(at + round) % sides.length]!;
        costs.get(name)!.push(await play(side));
      }
    }
    await agent.close();
    const chat = costs.get(CHAT)!;
    const middle = (name: string, member: keyof Cost) => short(median(costs.get(name)!.map((cost) => cost[member])));
    const ratio = (name: string, member: keyof Cost) =>
      `${median(costs.get(name)!.map((cost, round) => cost[member] / chat[round]![member])).toFixed(2)} ×`;
    printTable(
      ["", "ms", "time", "process ms", "process time", "serving thread ms", "serving thread time"],
      sides.map(([name]) => [
        name,
        ...(["ms", "processMs", "threadMs"] as const).flatMap((each) => [middle(name, each), ratio(name, each)]),
      ]),
    );
  });
}

/** Returns a function that sends a body and resolves with the text of its answer. */
function poster({ url, apiKey }: Address, dispatcher: Agent) {
  return async (path: string, body: object, key = apiKey): Promise<string> => {
    const answer = await request(url + path, {
      method: "POST",
      dispatcher,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const text = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`A request to ${path} was answered with ${answer.statusCode}: ${text}`);
    return text;
  };
}

async function sessionKeys(post: ReturnType<typeof poster>, count: number): Promise<string[]> {
  const keys: string[] = [];
  for (let index = 0; index < count; index++) {
    const session = JSON.parse(await post("/v1/preview/sessions", { model: "whetstone-tiny" })) as { readonly key: string };
    keys.push(session.key);
  }
  return keys;
}

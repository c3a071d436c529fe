/**
 * Conversations of many agents at once over HTTP on the shipped model: through sessions, which record every turn, and as plain chat
 * completions with the service's key. Checks that every session has exactly its own turns.
 *
 *   npm run bench -- sessions [--sessions 500] [--turns 5] [--tokens 24] [--rounds 3]
 */
import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";
import { withHost } from "./latency-service.ts";
import { median, printTable, processorMs, short, whole } from "./support.ts";

interface Message {
  readonly role: string;
  readonly content: string;
}

interface Load {
  readonly turns: number;
  readonly tokens: number;
  /** Further fields of the requests. */
  readonly more?: object;
}

/** Time of one round, and processor time of the service, which depends less on other processes. */
interface Cost {
  readonly ms: number;
  readonly cpuMs: number;
}

type Send = (method: "POST" | "GET" | "DELETE", path: string, body?: object, key?: string) => Promise<any>;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      sessions: { type: "string", default: "500" },
      turns: { type: "string", default: "5" },
      tokens: { type: "string", default: "24" },
      rounds: { type: "string", default: "3" },
    },
  });
  const [count, rounds] = [whole("sessions", values.sessions), whole("rounds", values.rounds)];
  const load: Load = { turns: whole("turns", values.turns), tokens: whole("tokens", values.tokens) };
  console.log(`${count} conversations at once, ${load.turns} turns of ${load.tokens} tokens, medians of ${rounds} rounds\n`);
  await withHost({ trainerThreads: 1, trainerNiceness: 10 }, async (address, host) => {
    const agent = new Agent({ connections: null, headersTimeout: 0 });
    const send = sender(address, agent);
    const all = Array.from({ length: count }, (_, index) => index);
    // No two conversations are equal, because a cached prefix costs nothing.
    let part = 0;
    const timed = async <T>(work: () => Promise<T>): Promise<Cost & { readonly result: T }> => {
      part++;
      const [startMs, cpuMs] = [performance.now(), await processorMs(host.pid!)];
      const result = await work();
      return { ms: performance.now() - startMs, cpuMs: (await processorMs(host.pid!)) - cpuMs, result };
    };
    const plain = (more: object) => (): Promise<Cost> =>
      timed(() => Promise.all(all.map((index) => converse(send, { ...load, more }, `${part}p${index}`))));
    const recorded = async (): Promise<Cost> => {
      const sessions: { id: string; key: string }[] = [];
      for (const _ of all) sessions.push(await send("POST", "/v1/preview/sessions", { model: "whetstone-tiny" }));
      const { result: said, ...cost } = await timed(() =>
        Promise.all(sessions.map(({ key }, index) => converse(send, load, `${part}p${index}`, key))),
      );
      for (const [index, { id }] of sessions.entries()) {
        const { trajectory } = await send("GET", `/v1/preview/sessions/${id}`);
        requireTurns(trajectory.messages_and_choices, said[index]!);
        await send("DELETE", `/v1/preview/sessions/${id}`);
      }
      return cost;
    };
    const sides = {
      "plain chat completions": plain({}),
      "with ids and log-probabilities": plain({ logprobs: true, return_token_ids: true }),
      sessions: recorded,
    };
    const times = new Map(Object.keys(sides).map((side) => [side, [] as Cost[]]));
    const memory = new Map<string, number>();
    await sides["plain chat completions"]();
    for (let round = 0; round < rounds; round++) {
      // Alternately first, because a round warms up the next one.
      for (const [side, work] of round % 2 === 0 ? Object.entries(sides) : Object.entries(sides).toReversed()) {
        times.get(side)!.push(await work());
        memory.set(side, await residentMiB(host.pid!));
      }
    }
    await agent.close();
    const base = times.get("plain chat completions")!;
    // Compared round by round: other processes slow both sides of a round more equally than different rounds.
    const ratio = (costs: readonly Cost[], part: keyof Cost): string =>
      `${median(costs.map((cost, index) => cost[part] / base[index]![part])).toFixed(2)} ×`;
    printTable(
      ["", "ms", "turns/s", "time", "processor ms", "processor time", "MiB in memory"],
      [...times].map(([side, costs]) => {
        const ms = median(costs.map((cost) => cost.ms));
        return [
          side,
          short(ms),
          short((count * load.turns * 1000) / ms),
          ratio(costs, "ms"),
          short(median(costs.map(({ cpuMs }) => cpuMs))),
          ratio(costs, "cpuMs"),
          String(memory.get(side)),
        ];
      }),
    );
  });
}

function sender({ url, apiKey }: Address, dispatcher: Agent): Send {
  return async (method, path, body, key = apiKey) => {
    const answer = await request(url + path, {
      method,
      dispatcher,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`A request was answered with ${answer.statusCode}: ${text}`);
    return JSON.parse(text) as unknown;
  };
}

/** Plays a conversation and returns its messages. */
async function converse(send: Send, { turns, tokens, more }: Load, name: string, key?: string): Promise<Message[]> {
  const messages: Message[] = [];
  for (let turn = 0; turn < turns; turn++) {
    messages.push({ role: "user", content: `${name} ${turn}` });
    const body = { model: "whetstone-tiny", messages, max_tokens: tokens, temperature: 1, seed: turn, ...more };
    const { choices } = await send("POST", "/v1/chat/completions", body, key);
    messages.push({ role: "assistant", content: choices[0].message.content });
  }
  return messages;
}

/** Throws unless the main history has exactly these messages. */
function requireTurns(items: readonly any[], said: readonly Message[]): void {
  const recorded = items.map(({ message, ...item }) => (message ?? item).content as string);
  const expected = said.map(({ content }) => content);
  if (recorded.join("\0") !== expected.join("\0")) throw new Error(`Expected the turns ${String(expected)}, got ${String(recorded)}`);
}

/** Returns the resident memory of a process; NaN where the system does not report it. */
async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
  return Math.round(Number(/VmRSS:\s+(\d+)/u.exec(status)?.[1] ?? Number.NaN) / 1024);
}

/**
 * Time to the first token of three entities, idle and while a fourth one has 500 requests in progress.
 *
 *   npm run bench -- fairness [--model <directory of a base model>] [--requests 500] [--tokens 64] [--words 60] [--probes 30]
 *
 * `--words` is the length of every prompt, `--tokens` the length of the answers of the fourth entity, which sends a request for each one that
 * ends. Each probe is a streamed completion of 4 tokens with a prompt of its own.
 */
import { setMaxListeners } from "node:events";
import { parseArgs } from "node:util";
import { Agent, request } from "undici";
import type { Address } from "./latency.bench.ts";
import { hosted } from "./latency-service.ts";
import { median, printTable, SHIPPED, whole } from "./support.ts";

/** Sender of the completions of one entity. */
interface Client {
  readonly entity: string;
  readonly key: string;
}

interface Sizes {
  readonly requests: number;
  readonly tokens: number;
  readonly words: number;
  readonly probes: number;
}

/** Max pause of an entity between two probes. */
const MAX_PAUSE_MS = 300;

const WORDS = ["one", "river", "stone", "bright", "carry", "under", "garden", "seven", "window", "slow", "paper", "north"];

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      model: { type: "string", default: SHIPPED },
      requests: { type: "string", default: "500" },
      tokens: { type: "string", default: "64" },
      words: { type: "string", default: "60" },
      probes: { type: "string", default: "30" },
    },
  });
  const sizes = {
    requests: whole("requests", values.requests),
    tokens: whole("tokens", values.tokens),
    words: whole("words", values.words),
    probes: whole("probes", values.probes),
  };
  await hosted({ directory: values.model, isFresh: false, more: {}, trainerThreads: 1, trainerNiceness: 10 }, async (address) => {
    const agent = new Agent({ connections: null, headersTimeout: 0, bodyTimeout: 0 });
    await compare(address, agent, sizes);
    await agent.destroy();
  });
}

async function compare(address: Address, agent: Agent, sizes: Sizes): Promise<void> {
  const [flood, ...others] = await Promise.all(["flood", "b", "c", "d"].map((entity) => createClient(address, agent, entity)));
  const measure = async () => {
    const all = await Promise.all(others.map(async (client) => [client.entity, await probe(address, agent, client, sizes)] as const));
    return new Map(all);
  };
  await measure();
  const idle = await measure();
  const stopped = new AbortController();
  setMaxListeners(0, stopped.signal);
  let ended = 0;
  const senders = Array.from({ length: sizes.requests }, async (_, index) => {
    for (let turn = 0; !stopped.signal.aborted; turn++) {
      await complete(address, agent, flood!, {
        ...sizes,
        seed: index * 1000 + turn,
        maxTokens: sizes.tokens,
        signal: stopped.signal,
      }).catch(() => null);
      ended++;
    }
  });
  // The first requests of the fourth entity fill all rows.
  await new Promise((resolve) => setTimeout(resolve, 3000));
  const startedMs = performance.now();
  const before = ended;
  const flooded = await measure();
  const rate = ((ended - before) / (performance.now() - startedMs)) * 1000;
  stopped.abort();
  await Promise.all(senders);
  const row = (name: string, alone: number[], crowded: number[]) => {
    const [first, second] = [median(alone), median(crowded)];
    return [name, first.toFixed(1), second.toFixed(1), (second / first).toFixed(2)];
  };
  const rows = others.map(({ entity }) => row(entity, idle.get(entity) ?? [], flooded.get(entity) ?? []));
  rows.push(row("all three", [...idle.values()].flat(), [...flooded.values()].flat()));
  console.log(`${sizes.requests} requests of the fourth entity in progress, ${rate.toFixed(1)} of them ended per second`);
  printTable(["entity", "idle: median ms to first token", "with the flood", "ratio"], rows);
}

async function createClient({ url, apiKey }: Address, dispatcher: Agent, entity: string): Promise<Client> {
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  const body = JSON.stringify({ name: entity, entity, scopes: ["sample"] });
  const answer = await request(`${url}/v1/preview/keys`, { method: "POST", dispatcher, headers, body });
  const { key } = (await answer.body.json()) as { readonly key: string };
  return { entity, key };
}

/** Measures the times to the first token of one entity, with a random pause before each request, so that few of them arrive together. */
async function probe(address: Address, agent: Agent, client: Client, sizes: Sizes): Promise<number[]> {
  const times: number[] = [];
  for (let turn = 0; turn < sizes.probes; turn++) {
    await new Promise((resolve) => setTimeout(resolve, Math.random() * MAX_PAUSE_MS));
    const seed = client.entity.charCodeAt(0) * 100_000 + turn * 7 + Math.floor(performance.now());
    times.push(await complete(address, agent, client, { ...sizes, seed, maxTokens: 4 }));
  }
  return times;
}

/** Sends a streamed completion, reads it to its end, and returns the milliseconds to its first event. */
async function complete(
  { url }: Address,
  dispatcher: Agent,
  { key }: Client,
  {
    seed,
    words,
    maxTokens,
    signal,
  }: { readonly seed: number; readonly words: number; readonly maxTokens: number; readonly signal?: AbortSignal },
): Promise<number> {
  let state = seed;
  const next = () => (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) / 2_147_483_648;
  const prompt = Array.from({ length: words }, () => WORDS[Math.floor(next() * WORDS.length)]).join(" ");
  const body = JSON.stringify({ prompt, max_tokens: maxTokens, seed, stream: true, ignore_eos: true });
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const startedMs = performance.now();
  let firstMs: number | null = null;
  const answer = await request(`${url}/v1/completions`, {
    method: "POST",
    dispatcher,
    headers,
    body,
    ...(signal === undefined ? {} : { signal }),
  });
  for await (const _ of answer.body) firstMs ??= performance.now() - startedMs;
  if (answer.statusCode !== 200 || firstMs === null) throw new Error(`Expected a stream, got status ${answer.statusCode}`);
  return firstMs;
}

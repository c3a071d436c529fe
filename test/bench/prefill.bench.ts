/**
 * Effect of the prefill of a long prompt on live streams: their longest gap between two tokens, compared with their median
 * gap, and the time to the first token of the prompt.
 *
 *   npm run bench -- prefill [--params tiny|2m|27m] [--streams 32] [--prompt 512] [--rounds 7]
 */
import { parseArgs } from "node:util";
import { request } from "undici";
import type { Address } from "./latency.bench.ts";
import { withHost } from "./latency-service.ts";
import { LiveStreams } from "./latency-streams.ts";
import { median, printTable, quantile, shapeName, short, whole } from "./support.ts";

/** Streams are watched for this long around each long prompt, in ms. */
const WINDOW_MS = 500;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "tiny" },
      streams: { type: "string", default: "32" },
      prompt: { type: "string", default: "512" },
      rounds: { type: "string", default: "7" },
    },
  });
  const [streams, prompt, rounds] = [whole("streams", values.streams), whole("prompt", values.prompt), whole("rounds", values.rounds)];
  const params = shapeName(values.params);
  console.log(
    `${params} parameters, ${streams} live streams, a prompt of about ${prompt} tokens ${rounds} times, medians of the rounds; gaps in ms at the client\n`,
  );
  const lines = await withHost(
    { trainerThreads: 1, trainerNiceness: 10 },
    async (address) => {
      const live = new LiveStreams(address, streams);
      await live.run(1000);
      const [quiet, beside, firsts, tokens]: [number[][], number[][], number[], number[]] = [[], [], [], []];
      for (let round = 0; round < rounds; round++) {
        quiet.push(await live.run(WINDOW_MS));
        const prompted = ask(address, round, prompt);
        beside.push(await live.run(WINDOW_MS, prompted));
        const { ms, promptTokens } = await prompted;
        firsts.push(ms);
        tokens.push(promptTokens);
      }
      await live.stop();
      const line = (label: string, gaps: number[][]) => {
        const middle = median(gaps.map((each) => median(each)));
        const longest = gaps.map((each) => quantile(each, 1));
        return [label, short(middle), short(median(longest)), (median(longest) / middle).toFixed(2), short(quantile(longest, 1))];
      };
      return [
        [...line("streams alone", quiet), "–", "–"],
        [...line("while it prefills", beside), String(median(tokens)), short(median(firsts))],
      ];
    },
    params,
  );
  printTable(["", "gap p50", "longest gap", "÷ p50", "worst round", "prompt tokens", "its first token"], lines);
}

/** Asks for one token after a prompt, and says how long it took. Every round has a prompt of its own from the first token on, so that none is in the prefix cache. */
async function ask({ url, apiKey }: Address, round: number, length: number): Promise<{ ms: number; promptTokens: number }> {
  const startMs = performance.now();
  const { statusCode, body } = await request(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${apiKey}`, "content-type": "application/json" },
    body: JSON.stringify({
      messages: [{ role: `r${round}`, content: `${round}x`.repeat(Math.ceil(length / 2)).slice(0, length) }],
      max_tokens: 1,
    }),
  });
  const text = await body.text();
  if (statusCode !== 200) throw new Error(`The long prompt was answered with ${statusCode}: ${text}`);
  return { ms: performance.now() - startMs, promptTokens: (JSON.parse(text) as { usage: { prompt_tokens: number } }).usage.prompt_tokens };
}

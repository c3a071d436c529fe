/** The floor: undici posts the same bodies and parses the answers, `concurrency` at a time. `runner-undici.ts <file with PeerInput as JSON>`. */
import { Agent } from "undici";
import { Meter } from "./runner-meter.ts";
import { promptOf, type PeerInput } from "./runner.bench.ts";
import { variantInput } from "./support.ts";

const { url, completions, concurrency, warmUp } = variantInput<PeerInput>();
const agent = new Agent({ connections: concurrency });
const headers = { accept: "application/json", authorization: "Bearer bench", "content-type": "application/json" };

async function complete(seed: number): Promise<void> {
  const { statusCode, body } = await agent.request({
    origin: url,
    path: "/v1/chat/completions",
    method: "POST",
    headers,
    body: JSON.stringify({
      model: "team/bench/runner:step0",
      messages: [{ role: "user", content: promptOf(seed) }],
      logprobs: true,
      return_token_ids: true,
      temperature: 1,
      max_completion_tokens: 32,
      seed,
      stream: false,
    }),
  });
  const answer = JSON.parse(await body.text()) as { choices: { token_ids: number[] }[] };
  if (statusCode !== 200 || answer.choices[0]!.token_ids.length === 0) throw new Error(`Unexpected answer ${statusCode}`);
}

async function loop(count: number, onEach: () => void): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      await complete(next++);
      onEach();
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
}

await loop(warmUp, () => {});
const meter = new Meter();
await loop(completions, () => meter.count());
console.log(JSON.stringify(meter.result()));
await agent.close();

/**
 * A service that answers every chat completion at once, in a process of its own: `runner-stub.ts <StubInput as JSON>`, over an IPC
 * channel. Sends `{ url }` once it listens; ends when the channel closes.
 *
 * The answers equal the answers of a service for a short sampled turn: log-probabilities with bytes, token ids of prompt and completion.
 * They are written out beforehand, so that the process is as fast as Node's HTTP server is.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { StubInput } from "./runner.bench.ts";

/** Its multiples fill the unit interval evenly: answers of a model differ in length, and so in time. */
const GOLDEN = 0.618_033_988_749_894_9;

/** Different answers; each request gets the next one. */
const ANSWERS = 64;

const { tokens, promptTokens, latencyMs } = JSON.parse(process.argv[2]!) as StubInput;
const answers = Array.from({ length: ANSWERS }, (_, index) => Buffer.from(JSON.stringify(completion(index))));
let next = 0;

const server = createServer((request, response) => {
  request.resume();
  request.on("end", () => {
    const body = answers[next++ % ANSWERS]!;
    const answer = () => response.writeHead(200, { "content-type": "application/json", "content-length": body.length }).end(body);
    if (latencyMs === 0) answer();
    else setTimeout(answer, latencyMs * (0.5 + ((next * GOLDEN) % 1)));
  });
});
// Nobody's socket is closed while its owner is busy.
server.keepAliveTimeout = 0;
server.listen(0, "127.0.0.1", () => process.send!({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }));
process.once("disconnect", () => process.exit());

function completion(index: number): unknown {
  const words = Array.from({ length: tokens }, (_, at) => ` word${(index * 31 + at * 7) % 997}`);
  return {
    id: `chatcmpl-${index}`,
    object: "chat.completion",
    created: 1_760_000_000,
    model: "team/bench/runner:step0",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: words.join(""), refusal: null, tool_calls: [], reasoning: null },
        logprobs: {
          content: words.map((token, at) => ({
            token,
            logprob: -Math.abs(Math.sin(index * 12.9898 + at * 78.233)) * 3,
            bytes: [...Buffer.from(token)],
            top_logprobs: [],
          })),
        },
        finish_reason: "stop",
        stop_reason: null,
        token_ids: words.map((_, at) => (index * 131 + at * 17) % 4096),
      },
    ],
    usage: { prompt_tokens: promptTokens, completion_tokens: tokens, total_tokens: promptTokens + tokens },
    prompt_token_ids: Array.from({ length: promptTokens }, (_, at) => (index * 7 + at) % 4096),
  };
}

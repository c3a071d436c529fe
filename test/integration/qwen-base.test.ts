/** A base that is not the shipped one: a Qwen 3 of random weights with a tokenizer of that style, served and trained as a user would. */
import { cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/index.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { startService } from "../../src/service/index.ts";
import { temporaryDirectory } from "./support.ts";

const ORACLE = join(import.meta.dirname, "../oracle");
const PROMPT = { role: "user", content: "Say 👍" } as const;
const ANSWER = "<think>\nok\n</think>\n\n👍 done";

/** Config, tokenizer and random weights in one directory. */
async function writeBase(): Promise<string> {
  const directory = await temporaryDirectory();
  await cp(join(ORACLE, "tokenization/qwen"), directory, { recursive: true });
  const config = JSON.parse(await readFile(join(ORACLE, "families/qwen3/model/config.json"), "utf8")) as object;
  // As with the released models, the vocabulary is larger than the tokenizer.
  const changes = { vocab_size: 544, max_position_embeddings: 512, initializer_range: 0.05 };
  await writeFile(join(directory, "config.json"), JSON.stringify({ ...config, ...changes }));
  const trainer = new Trainer({ threads: 1 });
  await trainer.saveState(await trainer.createModel({ id: "base", directory }, { seed: 1, fresh: true }), directory);
  return directory;
}

test("a Qwen 3 model learns an answer with reasoning, as an adapter and in full", async () => {
  const embedded = await startService({ dataDir: await temporaryDirectory(), baseModels: { qwen: await writeBase() } });
  onTestFinished(() => embedded.close({ graceMs: 0 }));
  const service = await connect({ baseUrl: embedded.url, apiKey: embedded.apiKey });
  onTestFinished(() => service.close());
  const example = { messages: [PROMPT, { role: "assistant" as const, content: ANSWER }] };
  const data = await uploadDataset(service, { project: "demo", name: "data", train: Array.from({ length: 16 }, () => example) });
  for (const [name, lora] of [
    ["adapter", { rank: 8 }],
    ["full", undefined],
  ] as const) {
    const model = await service.models.create({ project: "demo", name, baseModel: "qwen", ...(lora ? { lora } : {}) });
    const say = async () => {
      const request = { model: `local/demo/${name}`, messages: [PROMPT], temperature: 0, max_tokens: 24 };
      const { choices } = await service.chat.completions.create(request);
      return [choices[0]?.message.content, choices[0]?.finish_reason];
    };
    expect(await say()).not.toEqual([ANSWER, "stop"]);
    const job = await model.trainSft(data, { epochs: 16, batchSize: 8, learningRate: 1e-2 });
    await job.done();
    expect(await say()).toEqual([ANSWER, "stop"]);
  }
});

/** An adapter that leaves the service and comes back, and a fork of it, with the embedded engine. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { connect, type Model } from "../../src/index.ts";
import { startService } from "../../src/service/index.ts";
import { BASE, temporaryDirectory, uploadExamples } from "./support.ts";

test("a downloaded and imported adapter and a fork give the same output as the trained adapter", async () => {
  const running = await startService({ dataDir: await temporaryDirectory() });
  onTestFinished(() => running.close({ graceMs: 0 }));
  const service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
  onTestFinished(() => service.close());
  const model = await service.models.create({ project: "demo", name: "first", baseModel: BASE, lora: { rank: 4, alpha: 6 } });
  const data = await uploadExamples(running, 6);
  const { metrics } = await (await model.trainSft(data, { learningRate: 0.02, epochs: 2, validationSplit: 0.2 })).done();
  expect(metrics["validation/loss"]).toBeGreaterThan(0);

  const directory = join(await temporaryDirectory(), "adapter");
  await (await model.checkpoint()).download(directory);
  expect((await readdir(directory)).toSorted()).toEqual(["adapter_config.json", "adapter_model.safetensors", "checkpoint.json"]);
  const { id } = await service.artifacts.create({ project: "demo", name: "adapter" });
  for (const name of ["adapter_config.json", "adapter_model.safetensors"]) {
    await service.artifacts.putFile(id, name, await readFile(join(directory, name)));
  }
  const { url } = await service.artifacts.commit(id);
  const imported = await service.models.create({ project: "demo", name: "imported", baseModel: BASE, from: url });
  expect(imported.lora).toEqual({ rank: 4, alpha: 6 });
  expect((await imported.checkpoint()).lineage).toEqual({ baseModel: BASE, parent: url, jobId: null, jobType: null });
  const fork = await service.models.create({ project: "demo", name: "fork", baseModel: BASE, from: (await model.policy()).id });

  const say = async (from: Model) => {
    const request = {
      messages: [{ role: "user" as const, content: "Say the number 3" }],
      max_completion_tokens: 8,
      temperature: 0,
      logprobs: true,
    };
    return (await (await from.policy()).complete(request)).choices[0]?.logprobs?.content?.map(({ token, logprob }) => [token, logprob]);
  };
  const said = await say(model);
  expect(await say(imported)).toEqual(said);
  expect(await say(fork)).toEqual(said);
  const untouched = await service.models.create({ project: "demo", name: "untouched", baseModel: BASE, lora: { rank: 4 } });
  expect(await say(untouched)).not.toEqual(said);
  // Its `A` is not zero: a fork of an untrained adapter starts from the same `A`.
  const twin = await service.models.create({ project: "demo", name: "twin", baseModel: BASE, from: untouched.id });
  const adapterOf = async (from: Model) => {
    const target = join(await temporaryDirectory(), "fresh");
    await (await from.checkpoint()).download(target);
    return readFile(join(target, "adapter_model.safetensors"));
  };
  expect((await adapterOf(twin)).equals(await adapterOf(untouched))).toBe(true);
  // The imported adapter can be trained further.
  await (await imported.trainSft(data, { learningRate: 0.02 })).done();
  expect(await say(imported)).not.toEqual(said);
  await expect(service.models.create({ project: "demo", name: "bad", baseModel: BASE, from: data })).rejects.toMatchObject({ status: 422 });
});

/** Errors of calls with options name the options as the caller wrote them. */
import { expect, it } from "vitest";
import { HttpError } from "../../src/library/client/index.ts";
import { optionNames, withOptionNames } from "../../src/library/client/option-names.ts";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { setUp } from "../train/support.ts";

const example = {
  messages: [
    { role: "user", content: "a" },
    { role: "assistant", content: "b" },
  ],
};

it("names the options of a job that the service rejects, and keeps the wire names of the HTTP interface", async () => {
  const { service, model } = await setUp();
  const { url } = await uploadDataset(service, { project: "demo", name: "lines", train: [example, example] });
  const both = model.trainSft(url, { validationDataUrl: url, validationSplit: 0.5 });
  await expect(both).rejects.toMatchObject({
    param: expect.stringMatching(/^validation(DataUrl|Split)$/),
    message: expect.stringMatching(/validation(DataUrl|Split)/),
  });
  await expect(both).rejects.not.toMatchObject({ message: expect.stringMatching(/validation_(data_url|split)/) });
  const raw = service.trainingJobs.createSft({
    model_id: model.id,
    training_data_url: url,
    experimental_config: { validation_data_url: url, validation_split: 0.5 },
  } as never);
  await expect(raw).rejects.toMatchObject({ status: 422, message: expect.stringMatching(/validation_(data_url|split)/) });
});

it("names the argument for a dataset that does not exist", async () => {
  const { model } = await setUp();
  await expect(model.trainSft("artifact:///local/demo/none:v0")).rejects.toMatchObject({ status: 404 });
  await expect(model.trainSft("nowhere")).rejects.toMatchObject({ param: "dataset", message: expect.stringContaining("dataset") });
});

it("names the options of an invalid model and of an invalid setting", async () => {
  const { service, model } = await setUp();
  const kept = service.models.create({ project: "demo", name: "n", baseModel: "tiny", keepOptimizer: true });
  await expect(kept).rejects.toMatchObject({ message: expect.stringContaining("keepOptimizer") });
  await expect(kept).rejects.not.toMatchObject({ message: expect.stringContaining("keep_optimizer") });
  await expect(model.trainSft("artifact:///local/demo/none:v0", { warmupRatio: 2 })).rejects.toMatchObject({
    code: "E_ARGUMENT",
    param: "warmupRatio",
  });
});

it("replaces paths and names of fields, and nothing else", async () => {
  const shape = { learning_rate: 0, epsilon: 0, lora: 0 };
  const failing = (message: string, param: string) =>
    withOptionNames(optionNames({ shape }, "config."), () => Promise.reject(new HttpError(message, { status: 422, param })));
  await expect(
    failing("config.learning_rate: expected a `learning_rate` above 0, got my_learning_rate", "config.learning_rate"),
  ).rejects.toMatchObject({
    message: "learningRate: expected a `learningRate` above 0, got my_learning_rate",
    param: "learningRate",
    status: 422,
  });
  await expect(failing("config.lora.rank: epsilon config", "config.lora.rank")).rejects.toMatchObject({
    message: "lora.rank: epsilon config",
    param: "lora.rank",
  });
  const conflict = new HttpError("learning_rate", { status: 409 });
  await expect(withOptionNames(optionNames({ shape }, "config."), () => Promise.reject(conflict))).rejects.toBe(conflict);
});

it("measures the loss on the validation half of an upload, and only on it", async () => {
  const { service, model } = await setUp();
  const dataset = await uploadDataset(service, { project: "demo", name: "lines", train: [example, example], validation: [example] });
  expect(dataset.validationUrl).toMatch(/\/lines-validation:v0$/);
  const measured = await (await model.trainSft(dataset)).done();
  expect(measured.metrics).toHaveProperty("validation/loss");
  const alone = await (await model.trainSft(dataset.url)).done();
  expect(alone.metrics).not.toHaveProperty("validation/loss");
});

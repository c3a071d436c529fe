import { expect, it } from "vitest";
import {
  planDpo,
  planSupervised,
  requestedHyperparameters,
  resolveHyperparameters,
} from "../../../src/service/fine-tuning/hyperparameters.ts";

it.each([
  [1, 25, 1],
  [4, 25, 1],
  [10, 10, 1],
  [33, 4, 1],
  [34, 3, 1],
  [1000, 3, 2],
  [8333, 3, 17],
  [8334, 2, 17],
  [30_000, 1, 60],
  [1_000_000, 1, 256],
])("chooses hyperparameters for %i examples: %i epochs, batches of %i", (examples, n_epochs, batch_size) => {
  const expected = { n_epochs, batch_size, learning_rate_multiplier: 1 };
  expect(resolveHyperparameters({}, examples)).toEqual(expected);
  expect(resolveHyperparameters({ n_epochs: "auto", batch_size: null, learning_rate_multiplier: "auto" }, examples)).toEqual(expected);
  const given = { n_epochs: 7, batch_size: 3, learning_rate_multiplier: 0.5 };
  expect(resolveHyperparameters(given, examples)).toEqual(given);
});

it("reads the hyperparameters of the method, or the deprecated ones, and not both", () => {
  const request = { model: "tiny", training_file: "file-1" };
  const method = { type: "supervised", supervised: { hyperparameters: { n_epochs: 2 } } } as const;
  expect(requestedHyperparameters(request)).toEqual({});
  expect(requestedHyperparameters({ ...request, method })).toEqual({ n_epochs: 2 });
  expect(requestedHyperparameters({ ...request, hyperparameters: { n_epochs: 3 } })).toEqual({ n_epochs: 3 });
  expect(() => requestedHyperparameters({ ...request, method, hyperparameters: {} })).toThrow(
    expect.objectContaining({ code: "E_ARGUMENT", param: "hyperparameters" }),
  );
});

const facts = { path: "method.supervised.hyperparameters", seed: 5, parameters: 1e6, isAdapter: true, validationUrl: null };
const plan = (examples: number, batch_size: number, n_epochs: number, more: Partial<Parameters<typeof planSupervised>[0]> = {}) =>
  planSupervised({ ...facts, examples, hyperparameters: { batch_size, n_epochs, learning_rate_multiplier: 2 }, ...more });

it("multiplies the default rate of the model's size", () => {
  expect(plan(8, 2, 1).config).toEqual({ batch_size: 2, learning_rate: 2e-3 });
  expect(plan(8, 2, 1, { parameters: 5e8, isAdapter: false }).config).toMatchObject({ learning_rate: 2e-4 });
  expect(plan(8, 2, 1, { parameters: Number.NaN }).config).toMatchObject({ learning_rate: 1e-3 });
});

it("makes checkpoints after the last three epochs", () => {
  expect(plan(9, 2, 1)).toMatchObject({ steps: 5, checkpointSteps: [] });
  expect(plan(9, 2, 2)).toMatchObject({ steps: 10, checkpointSteps: [5] });
  expect(plan(9, 2, 3)).toMatchObject({ steps: 15, checkpointSteps: [5, 10] });
  expect(plan(9, 2, 6)).toMatchObject({ steps: 30, checkpointSteps: [20, 25] });
});

it("validates after each epoch, and between epochs at most ten times in all", () => {
  const validationUrl = "artifact:///local/files/file-1:v0";
  const every = (examples: number, epochs: number) => plan(examples, 1, epochs, { validationUrl }).experimental_config?.validation_every;
  expect(plan(10, 1, 1).experimental_config).toEqual({ epochs: 1, shuffle_seed: 5 });
  expect(every(10, 1)).toBe(1);
  expect(every(100, 1)).toBe(10);
  expect(every(60, 2)).toBe(12);
  expect(every(7, 3)).toBe(7);
  expect(every(4, 25)).toBe(4);
});

it("rejects more steps than a training job can have", () => {
  expect(plan(1000, 1, 1000).steps).toBe(1_000_000);
  expect(() => plan(1001, 1, 1000)).toThrow(
    expect.objectContaining({
      code: "E_ARGUMENT",
      param: "method.supervised.hyperparameters.n_epochs",
      message: expect.stringContaining("at most 1000000 optimizer steps, got 1001000"),
    }),
  );
  const hyperparameters = { batch_size: 1, n_epochs: 1000, learning_rate_multiplier: 1 };
  expect(() => planDpo({ ...facts, examples: 1001, hyperparameters, path: "method.dpo.hyperparameters" }, 0.1)).toThrow(
    expect.objectContaining({ param: "method.dpo.hyperparameters.n_epochs" }),
  );
});

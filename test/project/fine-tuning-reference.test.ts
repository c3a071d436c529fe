/** Compares the compatibility tables of `docs/how-to/move-openai-fine-tuning.md` with the schemas and with the types of the client. */
import type OpenAI from "openai";
import type { FineTuningJobCheckpoint as ClientCheckpoint } from "openai/resources/fine-tuning/jobs/checkpoints";
import type { DpoHyperparameters, ReinforcementHyperparameters } from "openai/resources/fine-tuning/methods";
import { expect, expectTypeOf, it } from "vitest";
import type { z } from "zod";
import * as schema from "../../src/base/schema/index.ts";
import { read } from "./files.ts";

const page = read("docs/how-to/move-openai-fine-tuning.md");

/** Rows of the table below a heading: field and support. */
function documented(heading: string): { readonly field: string; readonly support: string }[] {
  const section = page.split(/^### /mu).find((text) => text.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`The page has no section "${heading}"`);
  return [...section.matchAll(/^\| `(\w+)` \| (\S+) \|/gmu)].map(([, field = "", support = ""]) => ({ field, support }));
}

const TABLES: Readonly<Record<string, z.ZodObject>> = {
  "Request of a job": schema.createFineTuningJobRequest,
  Hyperparameters: schema.supervisedHyperparameters,
  "Hyperparameters of dpo": schema.dpoHyperparameters,
  "Hyperparameters of a reinforcement job": schema.reinforcementHyperparameters,
  Job: schema.fineTuningJob,
  Event: schema.fineTuningJobEvent,
  Checkpoint: schema.fineTuningJobCheckpoint,
  "Metrics of a checkpoint": schema.fineTuningCheckpointMetrics,
  File: schema.fileObject,
};

it.each(Object.entries(TABLES))("lists the fields of the schema: %s", (heading, { shape }) => {
  const rows = documented(heading);
  // The schema has the fields that are supported, and those that are known to be rejected.
  const inSchema = rows.filter(({ field, support }) => support !== "❌" || field in shape).map(({ field }) => field);
  expect(inSchema.toSorted()).toEqual(Object.keys(shape).toSorted());
});

/** Keys of the client's types. The compiler requires each of them, and no other. */
const CLIENT: Readonly<Record<string, Readonly<Record<string, true>>>> = {
  "Request of a job": {
    model: true,
    training_file: true,
    hyperparameters: true,
    integrations: true,
    metadata: true,
    method: true,
    seed: true,
    suffix: true,
    validation_file: true,
  } satisfies Record<keyof OpenAI.FineTuning.JobCreateParams, true>,
  Hyperparameters: { batch_size: true, learning_rate_multiplier: true, n_epochs: true } satisfies Record<
    keyof OpenAI.FineTuning.JobCreateParams.Hyperparameters,
    true
  >,
  "Hyperparameters of dpo": { batch_size: true, beta: true, learning_rate_multiplier: true, n_epochs: true } satisfies Record<
    keyof DpoHyperparameters,
    true
  >,
  "Hyperparameters of a reinforcement job": {
    batch_size: true,
    compute_multiplier: true,
    eval_interval: true,
    eval_samples: true,
    learning_rate_multiplier: true,
    n_epochs: true,
    reasoning_effort: true,
  } satisfies Record<keyof ReinforcementHyperparameters, true>,
  Job: {
    id: true,
    created_at: true,
    error: true,
    fine_tuned_model: true,
    finished_at: true,
    hyperparameters: true,
    model: true,
    object: true,
    organization_id: true,
    result_files: true,
    seed: true,
    status: true,
    trained_tokens: true,
    training_file: true,
    validation_file: true,
    estimated_finish: true,
    integrations: true,
    metadata: true,
    method: true,
  } satisfies Record<keyof OpenAI.FineTuning.FineTuningJob, true>,
  Event: { id: true, created_at: true, level: true, message: true, object: true, data: true, type: true } satisfies Record<
    keyof OpenAI.FineTuning.FineTuningJobEvent,
    true
  >,
  Checkpoint: {
    id: true,
    created_at: true,
    fine_tuned_model_checkpoint: true,
    fine_tuning_job_id: true,
    metrics: true,
    object: true,
    step_number: true,
  } satisfies Record<keyof ClientCheckpoint, true>,
  "Metrics of a checkpoint": {
    full_valid_loss: true,
    full_valid_mean_token_accuracy: true,
    step: true,
    train_loss: true,
    train_mean_token_accuracy: true,
    valid_loss: true,
    valid_mean_token_accuracy: true,
  } satisfies Record<keyof ClientCheckpoint.Metrics, true>,
  File: {
    id: true,
    bytes: true,
    created_at: true,
    filename: true,
    object: true,
    purpose: true,
    status: true,
    expires_at: true,
    status_details: true,
  } satisfies Record<keyof OpenAI.FileObject, true>,
};

it.each(Object.entries(CLIENT))("lists every field of the client's types: %s", (heading, keys) => {
  const own = documented(heading).filter(({ support }) => support !== "extension");
  expect(own.map(({ field }) => field).toSorted()).toEqual(Object.keys(keys).toSorted());
});

it("answers with the client's types", () => {
  // The client's types do not have the graders that this service supports in addition.
  expectTypeOf<Omit<schema.FineTuningJob, "method">>().toExtend<Omit<OpenAI.FineTuning.FineTuningJob, "method">>();
  expectTypeOf<schema.FineTuningJob["method"]["type"]>().toExtend<OpenAI.FineTuning.FineTuningJob.Method["type"]>();
  expectTypeOf<schema.FineTuningJobEvent>().toExtend<OpenAI.FineTuning.FineTuningJobEvent>();
  expectTypeOf<Omit<schema.FileObject, "purpose" | "expires_at">>().toExtend<Omit<OpenAI.FileObject, "purpose" | "expires_at">>();
});

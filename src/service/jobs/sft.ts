import { buildSftBatch, planSft, type SftStep } from "../../learner/index.ts";
import { getArtifact } from "../store/artifacts.ts";
import type { Store } from "../store/tables.ts";
import type { JobScope, Trained } from "./run-job.ts";
import { readSftData, type SftData, type SftJobConfig } from "./sft-data.ts";

/** What a `gradient_step` event of an SFT job says. */
interface SftStepMetrics {
  readonly gradient_step: number;
  readonly loss: number;
  readonly grad_norm: number;
  readonly learning_rate: number;
  readonly num_trajectories: number;
  readonly num_tokens: number;
  readonly num_trainable_tokens: number;
  readonly tokens_per_second: number;
}

/** One optimizer step per batch, from the last committed step on. */
export async function trainSft(scope: JobScope): Promise<Trained> {
  const { context, job, base, signal, emit } = scope;
  const { store, tokenizers, blobPath, limits } = context;
  const config = JSON.parse(job.config) as SftJobConfig;
  const artifact = await getArtifact(store, config.artifact_id);
  const data = await readSftData(artifact, { base, tokenizer: await tokenizers(base.directory), blobPath, signal });
  const { steps } = planSft(data.examples.length, config.config, config.experimental_config);
  await emit({ key: "start", type: "training_started", data: { num_sequences: steps.length } });
  for (const [index, step] of steps.entries()) {
    if (index < job.committed_steps) continue;
    signal.throwIfAborted();
    const metrics = await trainStep(scope, data, { step, number: index + 1 });
    await emit({ key: `step:${index + 1}`, type: "gradient_step", data: { ...metrics } });
    const done = index + 1;
    // The last step is committed by the checkpoint itself.
    if (done % limits.commitEverySteps === 0 && done < steps.length) await scope.commitProgress(done);
  }
  return {
    metrics: { ...(await summarize(store, job.id)), num_dropped_sequences: data.droppedSequences, num_dropped_tokens: data.droppedTokens },
    events: [],
  };
}

async function trainStep(
  { context, handle, signal }: JobScope,
  data: SftData,
  { step, number }: { readonly step: SftStep; readonly number: number },
): Promise<SftStepMetrics> {
  const batch = buildSftBatch(step.examples.flatMap((example) => data.examples[example] ?? []));
  const startedMs = performance.now();
  const { metrics } = await context.engine.forwardBackward(handle, batch.rows, batch.loss, { signal });
  const { gradNorm } = await context.engine.optimStep(handle, step.adam, { signal });
  const seconds = (performance.now() - startedMs) / 1000;
  return {
    gradient_step: number,
    loss: metrics.loss,
    grad_norm: gradNorm,
    learning_rate: step.adam.learningRate,
    num_trajectories: step.examples.length,
    num_tokens: batch.tokens,
    num_trainable_tokens: batch.trainedTokens,
    tokens_per_second: batch.tokens / Math.max(seconds, 1e-9),
  };
}

/** Means and sums over all steps, read back from the events: steps from before a crash count too. */
async function summarize(store: Store, jobId: string): Promise<Record<string, number>> {
  const rows = await store
    .selectFrom("job_events")
    .select("data")
    .where("job_id", "=", jobId)
    .where("type", "=", "gradient_step")
    .orderBy("seq")
    .execute();
  const steps = rows.map((row) => JSON.parse(row.data) as SftStepMetrics);
  const sum = (key: keyof SftStepMetrics) => steps.reduce((total, step) => total + step[key], 0);
  return {
    loss: sum("loss") / steps.length,
    last_loss: steps.at(-1)?.loss ?? 0,
    grad_norm: sum("grad_norm") / steps.length,
    learning_rate: steps.at(-1)?.learning_rate ?? 0,
    num_gradient_steps: steps.length,
    num_trajectories: sum("num_trajectories"),
    num_tokens: sum("num_tokens"),
    num_trainable_tokens: sum("num_trainable_tokens"),
  };
}

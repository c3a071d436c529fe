import type { Model, ModelPolicy, Service } from "../client/index.ts";
import { NotFoundError } from "../errors.ts";
import { connect, type Policy } from "../index.ts";
import { BASE_MODEL_FORMS, parseBaseModel } from "../util/base-model.ts";
import { InterruptedError } from "./failure.ts";
import { onStop } from "./stop-signal.ts";

/** Name of a trained model. */
export interface ModelName {
  readonly project: string;
  readonly name: string;
}

/** Connection of a running command. */
export interface Connected {
  readonly service: Service;
  /** Signal that aborts at the first SIGINT or SIGTERM; a second one ends the process. */
  readonly signal: AbortSignal;
}

/**
 * Runs a command with the configured service, or with the embedded service, and closes the connection afterwards.
 *
 * @param hint - Continuation of the message that a signal stopped the command, such as `; start it again and it resumes`.
 * @throws InterruptedError if SIGINT or SIGTERM stopped the command.
 */
export async function withService<T>(run: (connected: Connected) => Promise<T>, hint = ""): Promise<T> {
  const controller = new AbortController();
  const { signal } = controller;
  const release = onStop((reason) => controller.abort(new InterruptedError(reason, hint)));
  try {
    const service = await connect({ signal });
    try {
      return await run({ service, signal });
    } finally {
      await service.close();
    }
  } catch (error) {
    // An abort reaches the command in many forms, such as the failure of the request that it ended.
    signal.throwIfAborted();
    throw error;
  } finally {
    release();
  }
}

/**
 * Returns the model of this name; creates it on the base model `base` if it does not exist.
 *
 * @param loraRank - Rank of the adapter of a new model; undefined for full-parameter training.
 */
export function openModel({ service, signal }: Connected, { project, name }: ModelName, base: string, loraRank?: number): Promise<Model> {
  const lora = loraRank === undefined ? undefined : { rank: loraRank };
  return service.models.create({ project, name, baseModel: base, returnExisting: true, lora, signal });
}

/**
 * Returns an existing model.
 *
 * @param hint - End of the error message: what to do instead.
 * @throws NotFoundError `E_NOT_FOUND` if the service has no such model; the message lists the models it has.
 */
export async function trainedModel(connected: Connected, model: ModelName, hint = ""): Promise<Model> {
  const path = `${model.project}/${model.name}`;
  const served = await connected.service.models.list({ signal: connected.signal });
  const found = served.find(({ id }) => id.endsWith(`/${path}`));
  // A service that reports no base model ignores the one in the request for an existing model.
  if (found) return openModel(connected, model, found.parent ?? found.id);
  const names = served.filter(({ parent }) => parent !== null).map(({ id }) => id.split("/").slice(-2).join("/"));
  throw new NotFoundError(
    `The model "${path}" does not exist on this service, which has ${names.length === 0 ? "none yet" : names.join(", ")}. Train it with \`whetstone train\`${hint}`,
    { param: "model" },
  );
}

/**
 * Returns the policy of an existing model's checkpoint.
 *
 * @param step - Step of the checkpoint; undefined for the newest.
 * @throws NotFoundError `E_NOT_FOUND` if the service has no such model, or the model has no such checkpoint.
 */
export async function trainedPolicy(connected: Connected, model: ModelName, step: number | undefined): Promise<ModelPolicy> {
  const found = await trainedModel(connected, model, ", or name a base model with `--base`");
  return found.policy(step, { signal: connected.signal });
}

/**
 * Returns the name of a base model in requests: an identifier as it is, any other form after the service has fetched and checked the model.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an identifier that the service does not have.
 */
export async function requestedBase({ service, signal }: Connected, base: string): Promise<string> {
  const served = await service.models.list({ signal });
  if (served.some(({ id, parent }) => id === base && parent === null)) return base;
  if (parseBaseModel(base, "base").kind !== "name") return service.addBaseModel(base, { signal });
  const known = served.filter(({ parent }) => parent === null).map(({ id }) => id);
  throw new NotFoundError(
    `The base model "${base}" does not exist on this service, which has ${known.join(", ")}. Other base models: ${BASE_MODEL_FORMS}; a directory here is ./${base}`,
    { param: "base" },
  );
}

/**
 * Returns a base model, untrained, as a policy.
 *
 * @throws NotFoundError `E_NOT_FOUND` for an identifier that the service does not have.
 */
export async function basePolicy(connected: Connected, base: string): Promise<Policy> {
  const id = await requestedBase(connected, base);
  const { completions } = connected.service.chat;
  return {
    id,
    step: null,
    complete: (request, options = {}) => completions.create({ ...request, model: id, stream: false }, { signal: options.signal }),
  };
}

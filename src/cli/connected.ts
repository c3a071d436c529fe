import type { Model, Service } from "../client/index.ts";
import { connect } from "../index.ts";
import { onStop } from "./stop-signal.ts";

/** Model selection of a command. */
export interface ModelOptions {
  readonly model: { readonly project: string; readonly name: string };
  readonly base: string;
}

/** Connection of a running command. */
export interface Connected {
  readonly service: Service;
  readonly model: Model;
  /** Signal that aborts at the first SIGINT or SIGTERM; a second one ends the process. */
  readonly signal: AbortSignal;
}

/** Runs a command with a model of the configured service, or of the embedded service, and closes the connection afterwards. */
export async function withModel<T>(
  { model: { project, name }, base }: ModelOptions,
  run: (connected: Connected) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const release = onStop(() => controller.abort(new Error("interrupted; start the same command again and it resumes")));
  const service = await connect();
  try {
    const model = await service.models.create({ project, name, baseModel: base, returnExisting: true, signal: controller.signal });
    return await run({ service, model, signal: controller.signal });
  } finally {
    await service.close();
    release();
  }
}

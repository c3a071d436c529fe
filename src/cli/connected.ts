import type { Model, Service } from "../client/index.ts";
import { connect } from "../index.ts";

/** Which model of which service. */
export interface ModelOptions {
  readonly model: { readonly project: string; readonly name: string };
  readonly base: string;
}

/** What a command works with. */
export interface Connected {
  readonly service: Service;
  readonly model: Model;
  /** Aborts at the first interrupt; a second one ends the process. */
  readonly signal: AbortSignal;
}

/** Runs a command with a model of the service that is configured, or of the embedded one; closes what it opened. */
export async function withModel<T>(
  { model: { project, name }, base }: ModelOptions,
  run: (connected: Connected) => Promise<T>,
): Promise<T> {
  const controller = new AbortController();
  const interrupt = () => controller.abort(new Error("interrupted; the same command goes on from here"));
  process.once("SIGINT", interrupt);
  const service = await connect();
  try {
    const model = await service.models.create({ project, name, baseModel: base, returnExisting: true, signal: controller.signal });
    return await run({ service, model, signal: controller.signal });
  } finally {
    process.off("SIGINT", interrupt);
    await service.close();
  }
}

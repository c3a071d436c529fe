/** Service and base model of a run. */
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { connect, type Service } from "whetstone";
import { startService } from "whetstone/service";

/** Base model of runs without another one. */
const SHIPPED_BASE = "whetstone-tiny";

/** Connected service with a base model; `close` ends the connection and the service of the run. */
export interface OpenBase {
  readonly service: Service;
  /** Value of `baseModel` for new models. */
  readonly baseModel: string;
  readonly close: () => Promise<void>;
}

/**
 * Connects to the service of WHETSTONE_BASE_URL if set, else to an embedded service of the run. A base model in a local directory needs an
 * embedded service.
 */
export async function openBase(base: string = SHIPPED_BASE, dataDir: string, signal: AbortSignal): Promise<OpenBase> {
  const isRemote = process.env["WHETSTONE_BASE_URL"] !== undefined;
  if (isRemote || !(await isDirectory(base))) {
    const service = await connect(isRemote ? { signal } : { dataDir, signal });
    return { service, baseModel: base, close: () => service.close() };
  }
  const baseModel = "local-base";
  const running = await startService({ dataDir, baseModels: { [baseModel]: resolve(base) } });
  const service = await connect({ baseUrl: running.url, apiKey: running.apiKey, signal });
  const close = async () => {
    await service.close();
    await running.close();
  };
  return { service, baseModel, close };
}

async function isDirectory(path: string): Promise<boolean> {
  return stat(path).then(
    (found) => found.isDirectory(),
    () => false,
  );
}

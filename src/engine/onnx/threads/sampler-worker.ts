/** Entry point of a sampler thread. */
import { parentPort, workerData } from "node:worker_threads";
import { serveCalls } from "../../../base/util/worker-rpc.ts";
import { onHost } from "../sample/host-place.ts";
import type { SamplerSettings } from "../sample/options.ts";
import { samplerMethods } from "./sampler-methods.ts";

const options = workerData as SamplerSettings;
const port = parentPort!;
const methods = samplerMethods(
  options,
  onHost(options.threads, { rollouts: options.rolloutPrecision, weights: options.weightPrecision }),
  (event) => port.postMessage({ event }),
);

/** Methods of a sampler thread. */
export type SamplerMethods = typeof methods;

serveCalls(port, methods);

/** Units that train and sample models: the processor with its threads, or a device with its process. */
import { ConfigError, EngineError } from "../../../base/errors.ts";
import type { DeviceInfo } from "../../engine-info.ts";
import type { ModelHandle, WorkerStatus } from "../../port.ts";
import { spawnWorker } from "../../../base/util/spawn-worker.ts";
import type { BaseSource } from "../model/config.ts";
import { DEFAULT_PREFIX_CACHE_BYTES, type SamplerSettings } from "../sample/options.ts";
import { DeviceProcess } from "./device-process.ts";
import type { DeviceEvent, DeviceSettings, DeviceTrainerMethods } from "./device-worker.ts";
import { type PolicyOptions, SamplerPool } from "./sampler-pool.ts";
import type { WorkerDeath } from "./supervised-worker.ts";
import { TrainerClient } from "./trainer-client.ts";
import type { CommonMethods } from "./trainer-methods.ts";
import type { TrainerEvent, TrainerMethods, TrainerSettings } from "./trainer-worker.ts";
import { messageOf } from "../../../base/util/values.ts";

/** Samplers and trainer on the same weights. */
export interface ComputeUnit {
  /** Description of the processor or the GPU. */
  readonly device: DeviceInfo;
  readonly samplers: SamplerPool;
  readonly trainer: Pick<TrainerClient<CommonMethods, unknown>, "createModel" | "holds" | "call" | "unload">;
  /** Returns the states of the samplers and the trainer. */
  readonly workers: () => readonly WorkerStatus[];
  /** Makes the weights of a model a policy. @param options - `isSmall`: whether every sampler gets a copy. */
  publish(model: ModelHandle, policy: string, base: BaseSource, options: PolicyOptions): Promise<void>;
  /** Stops the workers after their current calls. */
  close(): Promise<void>;
}

/** Settings of {@link processorUnit}. */
export interface ProcessorOptions {
  /** Number of sampler threads. */
  readonly samplers: number;
  readonly sampler: SamplerSettings & { readonly maxRows: number };
  readonly trainer: Omit<TrainerSettings, "weightPrecision">;
  /** Number formats of base models and of sampling. */
  readonly precisions: Required<Pick<SamplerSettings, "rolloutPrecision">> & Pick<TrainerSettings, "weightPrecision">;
  readonly onDeath: (death: WorkerDeath) => void;
}

/** Starts the threads of the processor. */
export function processorUnit({ samplers: count, sampler, trainer: settings, precisions, onDeath }: ProcessorOptions): ComputeUnit {
  const { weightPrecision } = precisions;
  const prefixCacheBytes = sampler.prefixCacheBytes ?? DEFAULT_PREFIX_CACHE_BYTES;
  const samplers = SamplerPool.ofThreads(count, { ...sampler, ...precisions, prefixCacheBytes }, onDeath);
  let helperRestarts = 0;
  const workerData: TrainerSettings = { ...settings, weightPrecision };
  const trainer = new TrainerClient<TrainerMethods, TrainerEvent>(
    {
      name: "trainer",
      spawn: () => spawnWorker("engine/onnx/threads/trainer-worker", { workerData }),
      onEvent: ({ helperDeath }) => {
        helperRestarts++;
        onDeath({ worker: "trainer-helper", message: helperDeath, restartsInMs: 0 });
      },
      onDeath,
    },
    () => samplers.freeIdle(),
  );
  /** State of the helper thread, which the trainer replaces at once; reported only after its first death. */
  const helper = () => ({ name: "trainer-helper", role: "trainer", state: "running", restarts: helperRestarts, restartsInMs: 0 }) as const;
  return {
    device: { name: "cpu", adapter: null, weightPrecision, rolloutPrecision: precisions.rolloutPrecision },
    samplers,
    trainer: trainer as unknown as ComputeUnit["trainer"],
    workers: () => [...samplers.status, trainer.status, ...(helperRestarts > 0 ? [helper()] : [])],
    async publish(model, policy, base, options) {
      const weights = await trainer.call(model, "weights", (id) => [id], options);
      await samplers.addPolicy(policy, base, weights, options);
    },
    close: async () => void (await Promise.all([samplers.close(), trainer.close()])),
  };
}

/** Message of the runtime for an adapter without the feature shader-f16. */
const LACKS_FLOAT16 = /requires f16|shader-f16/u;

/** Time that the process of a device may take to end, in milliseconds: a driver may hang, and a batch of a large model takes long. */
const CLOSE_MS = 10_000;

/** Settings of {@link deviceUnit}. */
export interface DeviceUnitOptions extends DeviceSettings {
  readonly onDeath: (death: WorkerDeath) => void;
  /** Called once per program with nodes that the processor computes instead of the device. */
  readonly onFallback: (fallback: DeviceEvent["fallback"]) => void;
  /** Whether an adapter that computes on the processor is accepted. */
  readonly acceptsSoftware: boolean;
}

/**
 * Starts the process of a device and opens the device.
 *
 * @throws EngineError `E_ENGINE` without an accepted adapter, or if it cannot be opened.
 * @throws ConfigError `E_CONFIG` if the adapter cannot store float16 and the weights are float16.
 */
export async function deviceUnit({ onDeath, onFallback, acceptsSoftware, ...settings }: DeviceUnitOptions): Promise<ComputeUnit> {
  const { weightPrecision } = settings;
  const deviceProcess = new DeviceProcess(settings);
  const samplers = new SamplerPool({ "device-sampler": () => deviceProcess.open("sampler") }, onDeath);
  const trainer = new TrainerClient<DeviceTrainerMethods, DeviceEvent>({
    name: "device-trainer",
    spawn: () => deviceProcess.open("trainer"),
    onEvent: ({ fallback }) => onFallback(fallback),
    onDeath,
  });
  const close = async () => {
    const timer = setTimeout(() => deviceProcess.kill(), CLOSE_MS);
    await Promise.all([samplers.close(), trainer.close()]).finally(() => clearTimeout(timer));
  };
  // The adapter is known only after the device is open.
  const info = (): DeviceInfo => ({ name: "webgpu", adapter: deviceProcess.adapter, weightPrecision });
  try {
    await trainer.ask("open", undefined as never).catch((cause: unknown) => {
      throw new EngineError(
        `The device "webgpu" could not be opened: ${reasonOf(cause)}. ${driverRemedy()}, or start the service with device "cpu"`,
        { cause },
      );
    });
    if (!acceptsSoftware && isSoftware(info()))
      throw new EngineError(`Expected a hardware adapter, got "${deviceProcess.adapter}", which computes on the processor`);
    if (weightPrecision === "float16") {
      await trainer.ask("storeFloat16", undefined as never).catch((cause: unknown) => {
        throw float16Failure(cause, deviceProcess.adapter);
      });
    }
  } catch (error) {
    await close();
    throw error;
  }
  return {
    get device() {
      return info();
    },
    samplers,
    trainer: trainer as unknown as ComputeUnit["trainer"],
    workers: () => [...samplers.status, trainer.status],
    // The device has a single sampler, so the size of the model does not matter.
    publish: (model, policy, base, options) =>
      samplers.addPublished(policy, () => trainer.call(model, "publish", (id) => [id, policy, base], options)),
    close,
  };
}

/** Returns the error for a device that cannot store a float16. */
function float16Failure(cause: unknown, adapter: string | null): ConfigError | EngineError {
  const reason = reasonOf(cause);
  if (!LACKS_FLOAT16.test(reason)) return new EngineError(`The device "webgpu" could not store a float16: ${reason}`, { cause });
  const adapterName = adapter === null ? "this adapter" : `"${adapter}"`;
  return new ConfigError(
    `\`weightPrecision\` "float16" needs an adapter with the WebGPU feature shader-f16, and ${adapterName} cannot read a float16. Use "float32", or a GPU and driver with this feature. Cause: ${reason}`,
    { cause, param: "weightPrecision" },
  );
}

/** Returns the message of an error of the device, for the messages of this file. */
function reasonOf(cause: unknown): string {
  return withoutSource(messageOf(cause)).trim();
}

/** Returns a message of ONNX Runtime without the name of the graph, the position in its source code and the failed condition. */
export function withoutSource(message: string): string {
  return message.replace(/^The graph "open" did not compile: /u, "").replace(/\S+\.(?:cc|h):\d+\s(?:.*? was false\.\s)?/gsu, "");
}

/** Returns the remedy on a platform for a missing adapter. */
export function driverRemedy(platform = process.platform): string {
  if (platform === "linux")
    return "Install the driver of the GPU with Vulkan, and the Vulkan loader libvulkan.so.1 (Debian and Ubuntu: apt-get install libvulkan1)";
  return platform === "win32" ? "Install the driver of the GPU with Direct3D 12" : "Install the driver of the GPU";
}

/** Whether an adapter computes on the processor. */
export function isSoftware({ adapter }: DeviceInfo): boolean {
  return adapter !== null && /swiftshader|llvmpipe|lavapipe|basic render/iu.test(adapter);
}

/** Units that train and sample models: the processor with its threads, or a device with its process. */
import { EngineError } from "../../../errors.ts";
import type { DeviceInfo } from "../../engine-info.ts";
import type { CallOptions, ModelHandle, WorkerStatus } from "../../port.ts";
import { spawnWorker } from "../../../util/spawn-worker.ts";
import type { BaseSource } from "../model/config.ts";
import { DEFAULT_PREFIX_CACHE_BYTES, type SamplerOptions } from "../sample/options.ts";
import { DeviceProcess } from "./device-process.ts";
import type { DeviceEvent, DeviceSettings, DeviceTrainerMethods } from "./device-worker.ts";
import { SamplerPool } from "./sampler-pool.ts";
import type { WorkerDeath } from "./supervised-worker.ts";
import { TrainerClient } from "./trainer-client.ts";
import type { CommonMethods } from "./trainer-methods.ts";
import type { TrainerEvent, TrainerMethods, TrainerSettings } from "./trainer-worker.ts";

/** Samplers and trainer on the same weights. */
export interface ComputeUnit {
  readonly device: DeviceInfo;
  readonly samplers: SamplerPool;
  readonly trainer: Pick<TrainerClient<CommonMethods, unknown>, "createModel" | "holds" | "call" | "unload">;
  readonly workers: () => readonly WorkerStatus[];
  /** Makes the weights of a model a policy. @param isSmall - Whether every sampler gets a copy. */
  publish(model: ModelHandle, policy: string, base: BaseSource, isSmall: boolean, options: CallOptions): Promise<void>;
  close(): Promise<void>;
}

/** Settings of {@link processorUnit}. */
export interface ProcessorOptions {
  readonly samplers: number;
  readonly sampler: SamplerOptions & { readonly maxRows: number };
  readonly trainer: TrainerSettings;
  readonly onDeath: (death: WorkerDeath) => void;
}

/** Starts the threads of the processor. */
export function processorUnit({ samplers: count, sampler, trainer: settings, onDeath }: ProcessorOptions): ComputeUnit {
  const prefixCacheBytes = sampler.prefixCacheBytes ?? DEFAULT_PREFIX_CACHE_BYTES;
  const samplers = SamplerPool.ofThreads(count, { ...sampler, prefixCacheBytes }, onDeath);
  let helperRestarts = 0;
  const trainer = new TrainerClient<TrainerMethods, TrainerEvent>({
    name: "trainer",
    spawn: () => spawnWorker("engine/onnx/threads/trainer-worker", { workerData: settings }),
    onEvent: ({ helperDeath }) => {
      helperRestarts++;
      onDeath({ worker: "trainer-helper", message: helperDeath, restartsInMs: 0 });
    },
    onDeath,
  });
  const helper = () => ({ name: "trainer-helper", role: "trainer", state: "running", restarts: helperRestarts, restartsInMs: 0 }) as const;
  return {
    device: { name: "cpu", adapter: null },
    samplers,
    trainer: trainer as unknown as ComputeUnit["trainer"],
    workers: () => [...samplers.status, trainer.status, ...(helperRestarts > 0 ? [helper()] : [])],
    async publish(model, policy, base, isSmall, options) {
      const weights = await trainer.call(model, "weights", (id) => [id], options);
      await samplers.addPolicy(policy, base, weights, isSmall, options);
    },
    close: async () => void (await Promise.all([samplers.close(), trainer.close()])),
  };
}

/** Settings of {@link deviceUnit}. */
export interface DeviceOptions extends DeviceSettings {
  readonly onDeath: (death: WorkerDeath) => void;
  /** Called once per program with nodes that the processor computes instead of the device. */
  readonly onFallback: (fallback: DeviceEvent["fallback"]) => void;
}

/**
 * Starts the process of a device and opens the device.
 *
 * @throws EngineError `E_ENGINE` without an adapter, or if it cannot be opened.
 */
export async function deviceUnit({ sampler, memoryBytes, onDeath, onFallback }: DeviceOptions): Promise<ComputeUnit> {
  const process = new DeviceProcess({ sampler, memoryBytes });
  const samplers = new SamplerPool({ "device-sampler": () => process.open("sampler") }, onDeath);
  const trainer = new TrainerClient<DeviceTrainerMethods, DeviceEvent>({
    name: "device-trainer",
    spawn: () => process.open("trainer"),
    onEvent: ({ fallback }) => onFallback(fallback),
    onDeath,
  });
  const close = async () => void (await Promise.all([samplers.close(), trainer.close()]));
  try {
    await trainer.ask("open", undefined as never);
  } catch (cause) {
    await close();
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new EngineError(
      `The device "webgpu" could not be opened: ${reason.trim()}. Install the driver of the GPU with its Vulkan, Metal or Direct3D 12 part, or start the service with device "cpu"`,
      { cause },
    );
  }
  return {
    get device() {
      return { name: "webgpu", adapter: process.adapter } as const;
    },
    samplers,
    trainer: trainer as unknown as ComputeUnit["trainer"],
    workers: () => [...samplers.status, trainer.status],
    publish: (model, policy, base, _isSmall, options) =>
      samplers.addPublished(policy, () => trainer.call(model, "publish", (id) => [id, policy, base], options)),
    close,
  };
}

/** Whether an adapter computes on the processor. */
export function isSoftware({ adapter }: DeviceInfo): boolean {
  return adapter !== null && /swiftshader|llvmpipe|lavapipe|basic render/iu.test(adapter);
}

/**
 * Entry point of the device's process, which trains and samples on a GPU. One process owns the device: the provider's state is one per
 * process and not safe for threads, and a fault in a driver ends this process and not the service.
 *
 * Sampler and trainer have a queue of calls each, so sampling continues between the batches of a training step.
 */
import { MessageChannel } from "node:worker_threads";
import { EngineError } from "../../../base/errors.ts";
import { serveCalls, type Methods } from "../../../base/util/worker-rpc.ts";
import type { DevicePrecision } from "../../engine-info.ts";
import { Graph, matmul } from "../graph/index.ts";
import type { BaseSource, ModelConfig } from "../model/config.ts";
import { DeviceBases } from "../model/device-bases.ts";
import { endsDevice, webgpu } from "../runtime/device.ts";
import { DeviceMemory } from "../runtime/device-memory.ts";
import type { Placement } from "../runtime/placement.ts";
import { loadRuntime, Program } from "../runtime/program.ts";
import { onDevice } from "../sample/device-place.ts";
import { KeysRoom } from "../sample/keys-room.ts";
import { devicePrefixCacheBytes, type SamplerSettings } from "../sample/options.ts";
import { paddedLength } from "../sample/prefill.ts";
import { positionsNeeded } from "../train/batch.ts";
import { DeviceTrainer } from "../train/device-trainer.ts";
import { deviceBudget } from "../train/memory-plan.ts";
import { samplerMethods, type SamplerEvent } from "./sampler-methods.ts";
import { trainerMethods } from "./trainer-methods.ts";
import { itemAt } from "../../../base/util/values.ts";

/** Role of a queue of calls. */
export type DeviceRole = "sampler" | "trainer";

/** Message between the device's process and its parent. */
export interface RoleMessage {
  readonly role: DeviceRole;
  readonly message: unknown;
}

/** Message of a role whose queue has been closed. */
export interface RoleClosed {
  readonly closed: DeviceRole;
}

/** Event of the trainer's queue: nodes of a program that the processor computes instead of the device. */
export interface DeviceEvent {
  readonly fallback: Placement & { readonly program: string };
}

/** Settings of the process. */
export interface DeviceSettings {
  readonly sampler: SamplerSettings;
  /** Size of the device's memory. @default 8 GB */
  readonly memoryBytes?: number | undefined;
  /** Type in which weights that are not trained are stored. */
  readonly weightPrecision: DevicePrecision;
}

/** Number 1 as float16. */
const FLOAT16_ONE = 0x3c00;

const settings = JSON.parse(itemAt(process.argv, 2)) as DeviceSettings;

/** Channel of each role: `port1` receives and answers calls, `port2` passes messages to and from the parent process. */
const channels = { sampler: new MessageChannel(), trainer: new MessageChannel() };
/** Roles with an open channel; the process ends after the last is closed. */
const openRoles = new Set<DeviceRole>(["sampler", "trainer"]);
for (const role of openRoles) {
  const { port2 } = channels[role];
  port2.on("message", (message: unknown) => {
    process.send!({ role, message } satisfies RoleMessage);
    // A new process opens the device again.
    const { error } = message as { error?: { message: string } };
    if (error !== undefined && endsDevice(error.message)) process.exit(1);
  });
  port2.on("close", () => {
    openRoles.delete(role);
    if (openRoles.size === 0) process.disconnect();
    else process.send!({ closed: role } satisfies RoleClosed);
  });
}
process.on("message", ({ role, message }: RoleMessage) => channels[role].port2.postMessage(message));
process.on("disconnect", () => process.exit(0));
// A terminal sends its signals to all processes of the service. The service finishes its requests first, and then disconnects.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});

const memory = new DeviceMemory(
  webgpu((placement) => {
    if (Object.keys(placement.onProcessor).length > 0) post("trainer", { fallback: placement } satisfies DeviceEvent);
  }),
);
/** Positions in the rotary tables, which the trainer and the sampler share. */
const positions = (config: ModelConfig) => Math.max(positionsNeeded(config), paddedLength(config.contextLength));
const bases = new DeviceBases(memory, positions, settings.weightPrecision);
// Trainer and sampler refer to each other: before a pass with gradient, the trainer waits until the sampler's caches leave it the memory.
const trainer: DeviceTrainer = new DeviceTrainer(memory, bases, deviceBudget(settings.memoryBytes), () => sampling.settle());

/** Posts an event of a role to the parent process. */
function post(role: DeviceRole, event: SamplerEvent | DeviceEvent): void {
  channels[role].port1.postMessage({ event });
}

const sampling = samplerMethods(
  { ...settings.sampler, prefixCacheBytes: settings.sampler.prefixCacheBytes ?? devicePrefixCacheBytes(settings.memoryBytes) },
  onDevice(memory, bases, new KeysRoom(memory, settings.memoryBytes, trainer)),
  (event) => post("sampler", event),
);

const training = {
  /** Checks that the device opens, by a product on it. */
  open: async () => {
    const { Tensor } = await loadRuntime();
    const graph = new Graph();
    const x = graph.input("x", [2, 2]);
    graph.output("y", matmul(x, x));
    const program = await Program.compile(graph, "open", { threads: 1, device: memory.device });
    await program.run({ x: new Tensor("float32", Float32Array.of(1, 2, 3, 4), [2, 2]) }, ["y"]);
    await program.release();
  },
  /** Checks that the device stores float16, by writing and reading a number. */
  storeFloat16: async () => {
    const number = await memory.upload(Uint16Array.of(FLOAT16_ONE), [1]);
    const [read] = await memory.download(number);
    number.release();
    if (read !== 1) throw new EngineError(`Expected to read 1, got ${read}`);
  },
  ...trainerMethods(trainer),
  /** Makes the weights of a model a policy of the sampler, without a copy. */
  publish: ([id, policy, base]: readonly [string, string, BaseSource]) => sampling.addPolicy([policy, base, trainer.weights(id)]),
};

/** Methods of the trainer's queue. */
export type DeviceTrainerMethods = typeof training;

serveCalls(channels.sampler.port1, sampling as Methods);
serveCalls(channels.trainer.port1, training);

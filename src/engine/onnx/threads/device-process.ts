/** The process of the device (GPU) as two workers, one that samples and one that trains. Both die and start together. */
import type { ChildProcess } from "node:child_process";
import { EventEmitter } from "node:events";
import { spawnProcess } from "../../../base/util/spawn-worker.ts";
import type { WorkerEnd } from "../../../base/util/worker-rpc.ts";
import type { DeviceRole, DeviceSettings, RoleClosed, RoleMessage } from "./device-worker.ts";

/** Max characters of the process's standard error that are kept to explain its death. */
const MAX_STDERR = 4096;

/** Processes of a device, at most one at a time. */
export class DeviceProcess {
  readonly #settings: DeviceSettings;
  /** Running process; null before the first start, and after its end. */
  #child: ChildProcess | null = null;
  /** Workers of the running process. */
  #roles = new Map<DeviceRole, RoleWorker>();
  #adapter: string | null = null;

  constructor(settings: DeviceSettings) {
    this.#settings = settings;
  }

  /** Name of the adapter as its driver reports it; null if the system does not say. */
  get adapter(): string | null {
    return this.#adapter;
  }

  /** Returns the worker of a role; starts the process if none is running. */
  open(role: DeviceRole): WorkerEnd {
    this.#child ??= this.#start();
    const worker = new RoleWorker(this.#child, role);
    this.#roles.set(role, worker);
    return worker;
  }

  /** Ends the process at once. */
  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  #start(): ChildProcess {
    // The Vulkan loader names the adapters at this level.
    const child = spawnProcess("engine/onnx/threads/device-worker", this.#settings, { ...process.env, VK_LOADER_DEBUG: "info" });
    // A map of its own: events of an earlier process still belong to that process's workers.
    const roles = new Map<DeviceRole, RoleWorker>();
    this.#roles = roles;
    let stderr = "";
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
      this.#adapter ??= adapterIn(stderr);
      stderr = withoutNoise(stderr).slice(-MAX_STDERR);
    });
    child.on("message", (message: RoleMessage | RoleClosed) => {
      if ("closed" in message) roles.get(message.closed)?.end(0);
      else roles.get(message.role)?.emit("message", message.message);
    });
    child.once("exit", (code, signal) => {
      if (this.#child === child) this.#child = null;
      for (const worker of roles.values()) {
        if (code !== 0) worker.emit("error", new Error(explainExit(code, signal, stderr)));
        worker.end(code ?? 1);
      }
    });
    return child;
  }
}

/** Worker of one role, as the parent sees it: sends and receives the messages of the role over the process's channel. */
class RoleWorker extends EventEmitter implements WorkerEnd {
  readonly #child: ChildProcess;
  readonly #role: DeviceRole;
  #hasEnded = false;
  /** Roles of each process that are in use; see {@link RoleWorker.ref}. */
  static readonly #usedRoles = new WeakMap<ChildProcess, Set<DeviceRole>>();

  constructor(child: ChildProcess, role: DeviceRole) {
    super();
    this.#child = child;
    this.#role = role;
  }

  postMessage(message: unknown): void {
    if (this.#child.connected) this.#child.send({ role: this.#role, message } satisfies RoleMessage);
  }

  /** Reports the end of the worker, once. */
  end(code: number): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.emit("exit", code);
  }

  ref(): void {
    this.#changeUse((usedRoles) => usedRoles.add(this.#role));
  }

  unref(): void {
    this.#changeUse((usedRoles) => usedRoles.delete(this.#role));
  }

  /** Changes the set of roles that are in use. The child keeps the parent alive while the set is not empty. */
  #changeUse(change: (usedRoles: Set<DeviceRole>) => void): void {
    const usedRoles = RoleWorker.#usedRoles.get(this.#child) ?? new Set();
    RoleWorker.#usedRoles.set(this.#child, usedRoles);
    change(usedRoles);
    const handles = [this.#child, this.#child.channel, this.#child.stderr as unknown as { ref(): void; unref(): void } | null];
    for (const handle of handles) {
      if (usedRoles.size > 0) handle?.ref();
      else handle?.unref();
    }
  }
}

/** Finds the first adapter that the Vulkan loader lists. */
function adapterIn(text: string): string | null {
  return /Sorted order:\s*\n[^\n]*\[0\]\s+([^\n]*\S)/u.exec(text)?.[1] ?? null;
}

/** Lines on standard error that explain no death: of the Vulkan loader, and of WebGPU when a device is opened. */
const NOISE = /^(?:INFO|WARNING|DEBUG|DRIVER|LAYER|error: XDG|Warning: maxDynamic)/u;

/**
 * Number of lines at the end in which {@link withoutNoise} keeps noise: the last may be incomplete, and {@link adapterIn} reads two lines.
 */
const RECENT_LINES = 6;

/** Removes lines of {@link NOISE}, except among the last lines. */
function withoutNoise(text: string): string {
  const lines = text.split("\n");
  return lines.filter((line, index) => index >= lines.length - RECENT_LINES || !NOISE.test(line)).join("\n");
}

/** Returns the message for the end of the process, with the last lines that it wrote to standard error. */
function explainExit(code: number | null, signal: NodeJS.Signals | null, stderr: string): string {
  const lines = stderr.split("\n").filter((line) => line.trim() !== "" && !NOISE.test(line));
  const exit = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
  return `the process of the device ${exit}${lines.length === 0 ? "" : `: ${lines.slice(-3).join(" ")}`}`;
}

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
  #child: ChildProcess | null = null;
  #ends = new Map<DeviceRole, RoleEnd>();
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
    const end = new RoleEnd(this.#child, role);
    this.#ends.set(role, end);
    return end;
  }

  /** Ends the process at once. */
  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  #start(): ChildProcess {
    // The Vulkan loader names the adapters at this level.
    const child = spawnProcess("engine/onnx/threads/device-worker", this.#settings, { ...process.env, VK_LOADER_DEBUG: "info" });
    const ends = (this.#ends = new Map());
    let stderr = "";
    child.stderr!.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
      this.#adapter ??= adapterIn(stderr);
      stderr = withoutNoise(stderr).slice(-MAX_STDERR);
    });
    child.on("message", (message: RoleMessage | RoleClosed) => {
      if ("closed" in message) ends.get(message.closed)?.end(0);
      else ends.get(message.role)?.emit("message", message.message);
    });
    child.once("exit", (code, signal) => {
      if (this.#child === child) this.#child = null;
      for (const end of ends.values()) {
        if (code !== 0) end.emit("error", new Error(explain(code, signal, stderr)));
        end.end(code ?? 1);
      }
    });
    return child;
  }
}

/** Worker of one role, as the parent sees it: sends and receives the messages of the role over the process's channel. */
class RoleEnd extends EventEmitter implements WorkerEnd {
  readonly #child: ChildProcess;
  readonly #role: DeviceRole;
  #hasEnded = false;
  static readonly #held = new WeakMap<ChildProcess, Set<DeviceRole>>();

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
    this.#hold((held) => held.add(this.#role));
  }

  unref(): void {
    this.#hold((held) => held.delete(this.#role));
  }

  /** Changes the set of roles that are in use. The child keeps the parent alive while the set is not empty. */
  #hold(change: (held: Set<DeviceRole>) => void): void {
    const held = RoleEnd.#held.get(this.#child) ?? new Set();
    RoleEnd.#held.set(this.#child, held);
    change(held);
    const handles = [this.#child, this.#child.channel, this.#child.stderr as unknown as { ref(): void; unref(): void } | null];
    for (const handle of handles) {
      if (held.size > 0) handle?.ref();
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

function explain(code: number | null, signal: NodeJS.Signals | null, stderr: string): string {
  const lines = stderr.split("\n").filter((line) => line.trim() !== "" && !NOISE.test(line));
  const end = signal === null ? `exited with code ${code}` : `was ended by ${signal}`;
  return `the process of the device ${end}${lines.length === 0 ? "" : `: ${lines.slice(-3).join(" ")}`}`;
}

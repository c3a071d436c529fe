/** The one place that touches onnxruntime-node: loading it, compiling graphs, running them. */
import type * as Ort from "onnxruntime-node";
import { EngineError, EngineMissingError } from "../../errors.ts";
import { type Graph, writeOnnx } from "./graph/index.ts";

export type Tensor = Ort.Tensor;
/** Inputs or preallocated outputs by name. */
export type Tensors = Record<string, Tensor>;

/** Makes tensors over arrays, without a copy. */
export type TensorConstructor = Awaited<ReturnType<typeof loadRuntime>>["Tensor"];

let loading: Promise<typeof Ort> | undefined;

/**
 * Loads the native runtime.
 *
 * @throws EngineMissingError `E_ENGINE_MISSING` when the binary is not there or does not load.
 */
export function loadRuntime(): Promise<typeof Ort> {
  loading ??= import("onnxruntime-node").catch((cause: unknown) => {
    loading = undefined;
    throw new EngineMissingError(
      "The embedded engine needs onnxruntime-node, which could not be loaded. Run: ONNXRUNTIME_NODE_INSTALL=skip npm install onnxruntime-node@1.30.0",
      { cause },
    );
  });
  return loading;
}

/** Settings of a compiled graph. */
export interface ProgramOptions {
  /** Threads inside one op. */
  readonly threads: number;
  /**
   * Whether the runtime sets aside one piece of memory for all intermediates of a shape it has seen before, beside what
   * the first run with that shape took. @default true
   */
  readonly memoryPattern?: boolean | undefined;
}

/** A compiled graph. `run` blocks the calling thread while it computes: call it from a worker. */
export class Program {
  readonly #session: Ort.InferenceSession;

  private constructor(session: Ort.InferenceSession) {
    this.#session = session;
  }

  static async compile(graph: Graph, name: string, options: ProgramOptions): Promise<Program> {
    const ort = await loadRuntime();
    try {
      const session = await ort.InferenceSession.create(writeOnnx(graph, name), {
        executionProviders: ["cpu"],
        intraOpNumThreads: options.threads,
        interOpNumThreads: 1,
        executionMode: "sequential",
        graphOptimizationLevel: "all",
        // Without the arena every intermediate is fresh pages from the system: a fifth of a step's processor time.
        enableCpuMemArena: true,
        enableMemPattern: options.memoryPattern ?? true,
        logSeverityLevel: 3,
        // A spinning thread takes the core from whoever has work: sampler, trainer and server share few of them.
        extra: { session: { intra_op: { allow_spinning: "0" } } },
      });
      return new Program(session);
    } catch (cause) {
      throw new EngineError(`The graph "${name}" did not compile: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    }
  }

  /** Names of the inputs that the compiled graph kept. */
  get inputNames(): readonly string[] {
    return this.#session.inputNames;
  }

  /**
   * Runs the graph. Inputs are read in place, never copied.
   *
   * @param fetches - Names to return, or by name preallocated tensors, which are then written in place and also copied out; null for none.
   */
  async run(feeds: Tensors, fetches: readonly string[] | Readonly<Record<string, Tensor | null>>): Promise<Tensors> {
    try {
      return (await this.#session.run(feeds, fetches as Ort.InferenceSession.FetchesType)) as Tensors;
    } catch (cause) {
      throw new EngineError(`The engine failed to run a graph: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    }
  }

  async release(): Promise<void> {
    await this.#session.release();
  }
}

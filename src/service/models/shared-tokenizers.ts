/** Tokenizers of the serving thread and of the work threads: their tables are read once and shared. */
import { createTokenizer, readTokenizerData, type TokenizerData } from "../../text/tokenizer/index.ts";
import { Lru, remember } from "../../base/util/lru.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import { createTokenizers, MAX_TOKENIZERS, type TokenizerSource } from "./tokenizers.ts";

/**
 * Work-thread side: creates the tokenizers of a thread, and the tasks with which the serving thread reads a tokenizer or hands one over.
 * {@link SharedTokenizers} is the serving-thread side.
 */
export function createWorkerTokenizers() {
  /** Data of tokenizers that this thread has read, or that another thread has read and the serving thread has sent. */
  const dataByDirectory = new Lru<string, Promise<TokenizerData>>({ maxEntries: MAX_TOKENIZERS });
  const readOnce = (directory: string): Promise<TokenizerData> => remember(dataByDirectory, directory, () => readTokenizerData(directory));
  const source: TokenizerSource = createTokenizers(async (directory) => createTokenizer(await readOnce(directory)));
  const tasks = {
    /** Reads a tokenizer, and returns its data for the other threads. */
    readTokenizer: (directory: string): Promise<TokenizerData> => readOnce(directory),

    /** Receives the data of a tokenizer for later tasks. Its tables are in shared memory, so that threads do not hold copies. */
    shareTokenizer: (data: TokenizerData): void => {
      void dataByDirectory.set(data.directory, Promise.resolve(data));
    },
  } as const;
  return { source, tasks };
}

/** Tasks of a work thread with which {@link SharedTokenizers} reads and hands over tokenizers. */
export type TokenizerTasks = ReturnType<typeof createWorkerTokenizers>["tasks"];

/**
 * Serving-thread side: has each tokenizer read once on a work thread, and hands its data to the other threads.
 * {@link createWorkerTokenizers} is the work-thread side.
 */
export class SharedTokenizers {
  /** Tokenizers of the serving thread. */
  readonly source: TokenizerSource;
  readonly #pool: WorkPool;
  /** Data of the tokenizers that a work thread has read or is reading. */
  readonly #dataByDirectory = new Lru<string, Promise<TokenizerData>>({ maxEntries: MAX_TOKENIZERS });
  /** Directories of the tokenizers that each thread has received. */
  readonly #received = new WeakMap<object, Set<string>>();

  /**
   * @param pool - Threads that read tokenizers.
   * @param source - Tokenizers of the serving thread. If given, no data is shared: each work thread reads its own. @default each tokenizer
   *   is read once, on a work thread, and its tables are shared by all threads
   */
  constructor(pool: WorkPool, source?: TokenizerSource) {
    this.#pool = pool;
    this.source = source ?? createTokenizers(async (directory) => createTokenizer(await this.#read(directory)));
  }

  /** Reads a tokenizer on a work thread, because reading one with a large vocabulary takes hundreds of milliseconds. */
  #read(directory: string): Promise<TokenizerData> {
    return remember(this.#dataByDirectory, directory, () =>
      this.#pool.use((thread: TaskThread<TokenizerTasks>) => thread.run("readTokenizer", directory)),
    );
  }

  /**
   * Gives a thread the data of the tokenizer of `directory`, if the serving thread has had it read; otherwise the thread reads the
   * tokenizer itself when it needs it. Call this before a task that needs the tokenizer.
   *
   * @param thread - Thread of any pool. The thread that read the tokenizer gets its data once more, which costs little.
   */
  async share(thread: TaskThread<TokenizerTasks>, directory: string): Promise<void> {
    const data = this.#dataByDirectory.get(directory);
    const receivedDirectories = this.#received.get(thread) ?? new Set<string>();
    if (data === undefined || receivedDirectories.has(directory)) return;
    await thread.run("shareTokenizer", await data);
    receivedDirectories.add(directory);
    this.#received.set(thread, receivedDirectories);
  }
}

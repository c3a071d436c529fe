/** Composition of the work threads: the pools, and the owners of their tasks. */
import { spawnWorker } from "../base/util/spawn-worker.ts";
import { ChatWork } from "./chat/work.ts";
import { Translator } from "./dialects/translator.ts";
import { GraderWork } from "./grading/grader-work.ts";
import { BodyReader } from "./http/body-reader.ts";
import { BODY_ERRORS } from "./chat/request/opened-chat.ts";
import { SharedTokenizers } from "./models/shared-tokenizers.ts";
import type { TokenizerSource } from "./models/tokenizers.ts";
import type { ServiceWork } from "./routes/context.ts";
import { DataWork } from "./training-data/data-work.ts";
import { WorkPool } from "./work/pool.ts";

/** Max work threads for chat requests, started on demand. */
const CHAT_THREADS = 2;
/** Max work threads for training data, large bodies and graders, started on demand. */
const DATA_THREADS = 4;
/** Max work threads for grammars, which may take long to compile. */
const GRAMMAR_THREADS = 1;

/** Creates a pool whose threads serve the tasks of all owners. */
export function createWorkPool(maxThreads: number): WorkPool {
  return new WorkPool({
    maxThreads,
    spawn: () => spawnWorker("service/request-worker"),
    errorClasses: BODY_ERRORS,
  });
}

/**
 * Creates the work threads of a service.
 *
 * @param source - Tokenizers of the serving thread; work threads then load their own. @default each is read once and shared by all threads
 */
export function createWork(source?: TokenizerSource): ServiceWork {
  const chat = createWorkPool(CHAT_THREADS);
  const grammars = createWorkPool(GRAMMAR_THREADS);
  const data = createWorkPool(DATA_THREADS);
  const tokenizers = new SharedTokenizers(chat, source);
  return {
    tokenizers: tokenizers.source,
    bodies: new BodyReader(data),
    chat: new ChatWork({ pool: chat, grammars, tokenizers }),
    translator: new Translator(chat),
    data: new DataWork(data, tokenizers),
    graders: new GraderWork(data),
    async close() {
      await Promise.all([chat, grammars, data].map((pool) => pool.close()));
    },
  };
}

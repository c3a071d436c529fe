/** Entry point of a work thread: registers the tasks of all owners. */
import { setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { serveCalls } from "../base/util/worker-rpc.ts";
import { createChatTasks } from "./chat/tasks.ts";
import { DIALECT_TASKS } from "./dialects/tasks.ts";
import { GRADER_TASKS } from "./grading/tasks.ts";
import { BODY_TASKS } from "./http/body-tasks.ts";
import { createWorkerTokenizers } from "./models/shared-tokenizers.ts";
import { createDataTasks } from "./training-data/tasks.ts";

/** Niceness of the thread, so that serving and sampling threads take precedence. */
const NICENESS = 5;

// On Linux the priority applies to the calling thread only; elsewhere it would slow down the whole process.
if (process.platform === "linux") setPriority(0, NICENESS);

const { source, tasks } = createWorkerTokenizers();
serveCalls(parentPort!, {
  ...tasks,
  ...BODY_TASKS,
  ...createChatTasks(source),
  ...DIALECT_TASKS,
  ...GRADER_TASKS,
  ...createDataTasks(source),
});

/** Entry point of a work thread. */
import { setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { serveCalls } from "../../util/worker-rpc.ts";
import { TASKS } from "./tasks.ts";

/** Niceness of the thread, so that serving and sampling threads take precedence. */
const NICENESS = 5;

// On Linux the priority applies to the calling thread only; elsewhere it would slow down the whole process.
if (process.platform === "linux") setPriority(0, NICENESS);

serveCalls(parentPort!, TASKS);

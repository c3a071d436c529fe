/** Entry point of a work thread. */
import { setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { Handover, serveCalls, type Methods } from "../../engine/onnx/worker-rpc.ts";
import { describeFailure } from "./refusals.ts";
import { TASKS } from "./tasks.ts";

/** Niceness of the thread, so that serving and sampling threads take precedence. */
const NICENESS = 5;

// On Linux the priority applies to the calling thread only; elsewhere it would slow down the whole process.
if (process.platform === "linux") setPriority(0, NICENESS);

const methods: Methods = Object.fromEntries(
  Object.entries(TASKS).map(([name, task]) => [
    name,
    async ([input]: readonly [never], signal: AbortSignal): Promise<unknown> => {
      try {
        const result = await (task as (input: never, signal: AbortSignal) => unknown)(input, signal);
        return result instanceof Handover ? new Handover({ value: result.value }, result.transfer) : { value: result };
      } catch (error) {
        const described = describeFailure(error);
        if (described === null) throw error;
        return described;
      }
    },
  ]),
);

serveCalls(parentPort!, methods);

/** The queue goes on when the end of one job cannot be put in order. */
import { expect, test, vi } from "vitest";
import { EngineError } from "../../src/errors.ts";
import { deferred } from "../../src/util/deferred.ts";
import { createModel, finishedEvents, RL_JOBS, startRlJob, startTestService, type TestService } from "./support.ts";

const broken = vi.hoisted(() => ({ files: false, events: false }));
vi.mock("../../src/service/jobs/job-files.ts", async (load) => {
  const original = await load<typeof import("../../src/service/jobs/job-files.ts")>();
  const removeJobFiles: typeof original.removeJobFiles = (...given) =>
    broken.files ? Promise.reject(new Error("the disk is read-only")) : original.removeJobFiles(...given);
  return { ...original, removeJobFiles };
});
vi.mock("../../src/service/store/jobs.ts", async (load) => {
  const original = await load<typeof import("../../src/service/store/jobs.ts")>();
  const appendEvent: typeof original.appendEvent = (store, jobId, event) =>
    broken.events && event.type === "training_failed"
      ? Promise.reject(new Error("the disk is full"))
      : original.appendEvent(store, jobId, event);
  return { ...original, appendEvent };
});

/** A service whose first job fails once both are there. */
async function twoJobs(): Promise<{ readonly service: TestService; readonly jobs: readonly [string, string] }> {
  const gate = deferred<void>();
  let failures = 0;
  const service = await startTestService({
    engine: {
      before: async ({ verb }) => {
        if (verb !== "optimStep" || failures++ > 0) return;
        await gate.promise;
        throw new EngineError("out of memory");
      },
    },
  });
  const { id } = await createModel(service);
  const jobs = [await startRlJob(service, id), await startRlJob(service, id)] as const;
  gate.resolve();
  return { service, jobs };
}

const messages = ({ log }: TestService) => log.filter(({ level }) => level !== "info").map(({ message }) => message);

test("files that cannot be removed are told of, and the next job runs", async () => {
  broken.files = true;
  try {
    const { service, jobs } = await twoJobs();
    expect((await finishedEvents(service, jobs[0])).at(-1)?.type).toBe("training_failed");
    expect((await finishedEvents(service, jobs[1])).at(-1)?.type).toBe("training_ended");
    expect(messages(service)).toEqual(["A training job failed", "A training job's files could not be removed"]);
  } finally {
    broken.files = false;
  }
});

test("an end that cannot be recorded is told of, and the next job runs", async () => {
  broken.events = true;
  try {
    const { service, jobs } = await twoJobs();
    expect((await finishedEvents(service, jobs[1])).at(-1)?.type).toBe("training_ended");
    expect(messages(service)).toEqual(["A training job failed", "The end of a training job could not be recorded"]);
    expect((await service.ok("GET", `${RL_JOBS}/${jobs[0]}`)).status).toBe("running");
  } finally {
    broken.events = false;
  }
});

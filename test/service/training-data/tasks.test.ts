import { expect, test } from "vitest";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { readJobGroups } from "../../../src/service/training-data/job-files.ts";
import { createDataTasks } from "../../../src/service/training-data/tasks.ts";
import { goodGroup, rlBody, temporaryDirectory, testBase, UNKNOWN_ID } from "../support.ts";

test("requests that are open in one thread keep their own groups until they are closed", async () => {
  const tasks = createDataTasks(() => Promise.reject(new Error("No group needs a tokenizer")));
  const directory = await openDataDirectory(await temporaryDirectory());
  const [base] = await testBase();
  const bytes = (groups: number) =>
    Buffer.from(JSON.stringify({ ...rlBody(UNKNOWN_ID), trajectory_groups: Array.from({ length: groups }, goodGroup) }));
  expect((await tasks.openRl({ id: 1, bytes: bytes(1) })).modelId).toBe(UNKNOWN_ID);
  await tasks.openRl({ id: 2, bytes: bytes(2) });
  for (const id of [1, 2]) {
    await tasks.acceptRl({ id, plan: { directory, jobId: `job-${id}`, config: null, base: base!, rollouts: {} } });
    expect(await readJobGroups(directory, `job-${id}`)).toHaveLength(id);
  }
  tasks.closeRl(1);
  const plan = { directory, jobId: "job-3", config: null, base: base!, rollouts: {} };
  await expect(tasks.acceptRl({ id: 1, plan })).rejects.toMatchObject({
    code: "E_CONFLICT",
    message: expect.stringContaining("RL request 1"),
  });
  await tasks.acceptRl({ id: 2, plan });
  expect(await readJobGroups(directory, "job-3")).toHaveLength(2);
});

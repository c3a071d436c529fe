import { expect, it } from "vitest";
import {
  chatLines,
  createModel,
  finishedEvents,
  goodGroup,
  MODELS,
  RL_JOBS,
  SFT_JOBS,
  startTestService,
  uploadArtifact,
  type TestService,
} from "../service/support.ts";
import { read } from "./files.ts";

const sections = read("docs/reference/metrics.md").split(/^## /mu);

/** The keys in the first column of the section with this heading. */
function documented(heading: string): string[] {
  const section = sections.find((text) => text.startsWith(`${heading}\n`));
  if (section === undefined) throw new Error(`docs/reference/metrics.md has no section "${heading}"`);
  return [...section.matchAll(/^\| `([\w/]+)` \|/gmu)].map((match) => match[1] ?? "").toSorted();
}

/** Keys of a job's gradient steps and of its checkpoint. */
async function emitted(
  service: TestService,
  modelId: string,
  jobId: string,
): Promise<{ readonly step: string[]; readonly checkpoint: string[] }> {
  const events = await finishedEvents(service, jobId);
  const steps = events.filter((event) => event.type === "gradient_step");
  const { data } = await service.ok("GET", `${MODELS}/${modelId}/checkpoints?order=desc&limit=1`);
  return { step: Object.keys(steps[0]?.data ?? {}).toSorted(), checkpoint: Object.keys(data[0].metrics).toSorted() };
}

it("lists exactly the keys that an RL job emits and keeps", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const { id } = await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [goodGroup()] });
  const { step, checkpoint } = await emitted(service, modelId, id);
  const keys = documented("RL: `gradient_step` and checkpoint");
  expect(step).toEqual(keys);
  expect(checkpoint).toEqual(keys.filter((key) => key !== "gradient_step"));
});

it("lists exactly the keys that an SFT job emits and keeps", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(3) });
  const { id } = await service.ok("POST", SFT_JOBS, { model_id: modelId, training_data_url: url });
  const { step, checkpoint } = await emitted(service, modelId, id);
  expect(step).toEqual(documented("SFT: `gradient_step`"));
  expect(checkpoint).toEqual(documented("SFT: checkpoint"));
});

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, vi } from "vitest";
import { connect, type Model, type Service } from "../../src/index.ts";
import { startTestService, type TestService, type TestServiceOptions } from "../../src/testing/index.ts";
import { choice, group } from "../learner/helpers.ts";

/** Service and client that all tests of a file share. */
export interface Shared {
  readonly server: TestService;
  readonly service: Service;
}

/** Starts a service for the tests of a file, to which commands connect by the environment's variables, and a client of it. */
export function useSharedService(options: TestServiceOptions = {}): Shared {
  const shared = {} as { server: TestService; service: Service };
  let dataDir: string;
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), "whetstone-cli-service-"));
    shared.server = await startTestService({ ...options, dataDir });
    shared.service = await connect({ baseUrl: shared.server.url, apiKey: shared.server.apiKey });
  });
  beforeEach(() => {
    vi.stubEnv("WHETSTONE_BASE_URL", shared.server.url);
    vi.stubEnv("WHETSTONE_API_KEY", shared.server.apiKey);
  });
  afterAll(async () => {
    await shared.service.close();
    await shared.server.close({ graceMs: 0 });
    await rm(dataDir, { recursive: true, force: true });
  });
  return shared;
}

/** Creates a model with a checkpoint per job. */
export async function trainedModel({ service }: Shared, name: string, jobs: number): Promise<{ model: Model; jobIds: string[] }> {
  const model = await service.models.create({ project: "demo", name, baseModel: "whetstone-tiny" });
  const jobIds: string[] = [];
  for (let index = 0; index < jobs; index++) {
    const batch = group({ reward: 1, choices: [choice([1, 2, 3], [4, 5])] }, { reward: 0, choices: [choice([1, 2, 3], [6])] });
    const { id } = await service.trainingJobs.createRl({
      model_id: model.id,
      trajectory_groups: [batch],
      experimental_config: { token_report: true },
    });
    for await (const event of service.follow(id, { timeoutMs: 120_000 })) if (event.type === "training-ended") jobIds.push(id);
  }
  return { model, jobIds };
}

/** Tests of stored files again, with an S3 bucket as the storage of every service that they start. */
import { beforeAll, beforeEach, describe, vi } from "vitest";
import { launchS3, whyNoS3, type S3Server } from "../../support/s3-server.ts";

describe.skipIf(whyNoS3 !== null)(`with an S3 storage${whyNoS3 === null ? "" : ` (${whyNoS3})`}`, async () => {
  let server: S3Server;

  beforeAll(async () => {
    const { close, ...launched } = await launchS3();
    server = launched;
    return close;
  });

  beforeEach(() => {
    vi.stubEnv("WHETSTONE_STORAGE", server.newUrl());
    return () => vi.unstubAllEnvs();
  });

  await import("../artifacts.test.ts");
  await import("../checkpoint-archive.test.ts");
  await import("../uploaded-adapter.test.ts");
  await import("../token-report.test.ts");
  if (process.env["STORAGE_SUITES"] !== "all") return;
  await import("../checkpoints.test.ts");
  await import("../rl-jobs.test.ts");
  await import("../sft-jobs.test.ts");
  await import("../preference-jobs.test.ts");
  await import("../warm-models.test.ts");
  await import("../models.test.ts");
  await import("../queue.test.ts");
  await import("../shutdown.test.ts");
  await import("../trainer-deaths.test.ts");
});

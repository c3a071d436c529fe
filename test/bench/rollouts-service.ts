/** Service of rollouts.bench.ts, with an engine that answers at once: `rollouts-service.ts <data directory>`, over an IPC channel. */
import { startTestService } from "whetstone/testing";

const dataDir = process.argv[2]!;
const { url, apiKey } = await startTestService({ dataDir, answer: () => "hello there" });
process.send!({ url, apiKey });

/** A service with the embedded engine in a process of its own, to be killed: `service-host.ts <data directory> [port]`. */
import { startService } from "../../src/service/index.ts";

// Commits are frequent, so that a kill lands before, in and after some of them.
const { url, apiKey } = await startService({
  dataDir: process.argv[2]!,
  port: Number(process.argv[3] ?? 0),
  limits: { commitEverySteps: 4 },
});
process.stdout.write(`${JSON.stringify({ url, apiKey })}\n`);

/**
 * Worst delays while requests at the limits are answered: of the serving thread's event loop, of `/health`, and between two tokens of
 * an open stream. Each field is sent at its largest allowed value; then large bodies, alone and eight at once.
 *
 *   npm run bench -- limits [--only <part of a name>] [--over <milliseconds>]
 */
import { parseArgs } from "node:util";
import { largestLines, largestOfSession, largestRequests, rlBodyOf, type LargestRequest } from "../support/largest-requests.ts";
import { Watch } from "../support/responsiveness.ts";
import { withHost } from "./latency-service.ts";
import { printTable, whole } from "./support.ts";

const MIB = 2 ** 20;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({ args, options: { only: { type: "string", default: "" }, over: { type: "string", default: "0" } } });
  const over = whole("over", values.over, 0);
  await withHost({ trainerThreads: 1, trainerNiceness: 10 }, async (address, host) => {
    const watch = new Watch(address, host);
    const existing = await watch.prepare(largestLines());
    const rl = (bytes: number): LargestRequest => ({
      name: `rl body of ${bytes / MIB} MiB`,
      method: "POST",
      path: "/v1/preview/training-jobs",
      body: rlBodyOf(bytes, existing),
    });
    const lines: string[][] = [];
    const measure = async (name: string, sent: readonly LargestRequest[]) => {
      const { status, tookMs, loopMs, healthMs, gapMs, message } = await watch.during(sent);
      if (Math.max(loopMs, healthMs, gapMs) < over) return;
      const numbers = [tookMs, loopMs, healthMs, gapMs].map((value) => value.toFixed(0));
      const size = sent.reduce((sum, { body }) => sum + body.length, 0) / 1024;
      lines.push([name, size.toFixed(0), String(status), ...numbers, message.replaceAll(/\s+/gu, " ").slice(11, 90)]);
      console.log(lines.at(-1)!.join(" | "));
    };
    for (const each of largestRequests(existing, { withVariants: true }))
      if (each.name.includes(values.only)) await measure(each.name, [each]);
    for (const each of largestOfSession(existing)) if (each.name.includes(values.only)) await measure(each.name, [each]);
    if ("rl body".includes(values.only) || values.only.startsWith("rl body")) {
      await measure("rl body of 62 MiB", [rl(62 * MIB)]);
      const large = rl(62 * MIB);
      await measure(
        "eight rl bodies of 62 MiB",
        Array.from({ length: 8 }, () => large),
      );
    }
    await watch.close();
    console.log("");
    printTable(["request", "KiB", "status", "took ms", "loop ms", "health ms", "stream gap ms", "answer"], lines);
  });
}

import { expect, it, onTestFinished } from "vitest";
import { HELLO, startChatServer } from "./support.ts";

it("a request for many choices causes no warning about a listener leak, with one listener per choice", async () => {
  const warnings: string[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning.name);
  process.on("warning", onWarning);
  onTestFinished(() => void process.off("warning", onWarning));
  const n = 24;
  let listening = 0;
  const server = await startChatServer({
    before: ({ verb }, { signal }) => {
      if (verb !== "sample") return;
      signal?.addEventListener("abort", () => undefined);
      listening++;
    },
  });
  onTestFinished(() => server.close());
  const { choices } = await server.complete({ ...HELLO, n, seed: 1 });
  expect(choices).toHaveLength(n);
  expect(listening).toBe(n);
  expect(warnings).toEqual([]);
});

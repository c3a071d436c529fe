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

it("64 choices and 64 parallel requests cause no warning of the process, streamed and with constraints", async () => {
  const warnings: string[] = [];
  const onWarning = (warning: Error): void => void warnings.push(warning.name);
  process.on("warning", onWarning);
  onTestFinished(() => void process.off("warning", onWarning));
  const server = await startChatServer();
  onTestFinished(() => server.close());
  const structured_outputs = { regex: "[a-z]+" };
  const bodies = [
    { ...HELLO, n: 64, seed: 1, logprobs: true, top_logprobs: 2 },
    { ...HELLO, n: 64, seed: 1, stream: true },
    { ...HELLO, n: 64, seed: 1, structured_outputs },
    ...Array.from({ length: 64 }, (_, seed) => ({ ...HELLO, seed, stream: seed % 2 === 0, structured_outputs })),
  ];
  const statuses = await Promise.all(
    bodies.map(async (body) => {
      const answer = await server.post(body);
      await answer.text();
      return answer.status;
    }),
  );
  expect(statuses).toEqual(bodies.map(() => 200));
  expect(warnings).toEqual([]);
});

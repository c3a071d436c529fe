import { Worker } from "node:worker_threads";
import { expect, onTestFinished, test, vi } from "vitest";
import { createWork } from "../../../src/service/create-work.ts";

const OPTIONS = { reasoningEnd: null };
const form = (pattern: string) => ({ form: { kind: "regex" as const, pattern }, whitespacePattern: null, closesObjects: false });

/** Returns a lookahead with an automaton that takes hundreds of milliseconds to build and then has too many states. */
const slow = (index: number) => form(`(?=(a|b)*a(a|b){9}$)(?=(a|b)*b(a|b){8}$)(a|b)*${"c".repeat(index)}`);

test("grammars have a thread of their own: chat bodies do not wait for them; when their client leaves, it ends and the next one gets a new thread", async () => {
  const work = createWork();
  onTestFinished(() => work.close());
  const terminate = vi.spyOn(Worker.prototype, "terminate");
  onTestFinished(() => terminate.mockRestore());
  const client = new AbortController();
  let settled = 0;
  const grammars = Array.from({ length: 24 }, (_, index) =>
    work.chat.compileOutput(slow(index), OPTIONS, client.signal).then(
      () => "compiled",
      (error: Error) => {
        settled++;
        return error.message;
      },
    ),
  );
  const body = { messages: [{ role: "user", content: "x".repeat(70_000) }] };
  const options = { needs: { parsesReasoning: false }, session: null, isForwardable: false };
  await work.translator.open("chat", Buffer.from(JSON.stringify(body)), options);
  expect(settled).toBeLessThan(grammars.length / 2);
  expect(terminate).not.toHaveBeenCalled();

  client.abort(new Error("client left"));
  expect((await Promise.all(grammars)).at(-1)).toBe("client left");
  // Only the thread that compiled: the thread of the chat body is kept.
  expect(terminate).toHaveBeenCalledOnce();
  const { states } = await work.chat.compileOutput(form("\\p{Lu}"), OPTIONS);
  expect(states).toBeGreaterThan(0);
  expect(terminate).toHaveBeenCalledOnce();
});

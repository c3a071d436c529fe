import { once } from "node:events";
import { Readable } from "node:stream";
import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import { webStream } from "../../../src/service/http/web-stream.ts";

/** Returns a stream and the function that pushes to it, with or without a reader. */
function pushing(): { readonly source: Readable; readonly push: (text: string) => void } {
  const source = new Readable({ read: () => undefined });
  return { source, push: (text) => void source.push(Buffer.from(text)) };
}

test("passes all bytes in order and reads only on demand", async () => {
  let reads = 0;
  const source = Readable.from(
    (async function* () {
      for (const text of ["a", "bc", "d"]) {
        reads++;
        await setImmediate();
        yield Buffer.from(text);
      }
    })(),
  );
  const body = webStream(source);
  await setImmediate();
  expect(reads).toBe(0);
  expect(await new Response(body).text()).toBe("abcd");
  expect(source.destroyed).toBe(true);
});

test("destroys the source if the reader cancels before the first byte or during a read", async () => {
  const untouched = pushing();
  await webStream(untouched.source).cancel();
  expect(untouched.source.destroyed).toBe(true);

  const awaited = pushing();
  const reader = webStream(awaited.source).getReader();
  const first = reader.read();
  await setImmediate();
  await reader.cancel();
  awaited.push("late");
  expect((await first).done).toBe(true);
  expect(awaited.source.destroyed).toBe(true);
});

test("ignores data of the source after the reader cancelled", async () => {
  const closing = deferred<void>();
  const source = new Readable({
    read: () => undefined,
    destroy: (error, callback) => void closing.promise.then(() => callback(error)),
  });
  const reader = webStream(source).getReader();
  source.push(Buffer.from("a"));
  const [first, second] = [reader.read(), reader.read()];
  expect(Buffer.from((await first).value!).toString()).toBe("a");
  source.push(Buffer.from("b"));
  await reader.cancel();
  source.push(Buffer.from("c"));
  closing.resolve();
  await once(source, "close");
  expect((await second).done).toBe(true);
});

test("fails the read if the source fails before or during it", async () => {
  const broken = () => new Error("the disk is gone");
  const before = pushing();
  const early = webStream(before.source);
  before.source.destroy(broken());
  await setImmediate();
  await expect(early.getReader().read()).rejects.toThrow("the disk is gone");

  const after = pushing();
  const reader = webStream(after.source).getReader();
  const read = reader.read();
  after.source.destroy(broken());
  await expect(read).rejects.toThrow("the disk is gone");
});

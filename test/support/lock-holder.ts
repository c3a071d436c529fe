/** Takes the lock at each path that it receives, and answers whether it holds it; releases it on any other message. */
import { takeLock } from "../../src/base/util/process-lock.ts";

let release: (() => Promise<void>) | null = null;
process.on("message", (message: { readonly path?: string }) => {
  void (async () => {
    await release?.();
    release = null;
    if (message.path !== undefined) release = await takeLock(message.path, { noun: "directory", param: "dir" }).catch(() => null);
    process.send!(release !== null);
  })();
});
process.send!("ready");

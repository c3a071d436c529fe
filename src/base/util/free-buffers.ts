/**
 * Frees the memory of buffers at once. The garbage collector would free them late, because it hardly considers memory outside of the heap.
 * The buffers are detached: arrays on them have length 0 afterwards.
 */
export function freeBuffers(buffers: readonly ArrayBuffer[]): void {
  if (buffers.length === 0) return;
  // A message to a closed port is dropped with the memory transferred to it.
  const { port1, port2 } = new MessageChannel();
  port2.close();
  port1.postMessage(null, [...buffers]);
  port1.close();
}

/**
 * Bodies of requests for undici versions without channels for them, such as undici 6 in the fetch of Node 20. The handler of a request
 * receives every chunk; its methods are wrapped to report the chunk first and then behave as before.
 */

/** Callbacks for the chunks of a request's bodies. */
export interface BodyListener {
  readonly onSent: (chunk: Uint8Array | string) => void;
  readonly onReceived: (chunk: Uint8Array) => void;
}

type Method = (this: unknown, chunk: Uint8Array) => unknown;

/** Observes the handler of a request from the channel `undici:request:create`; does nothing if no handler is found. */
export function watchHandler(request: object, { onSent, onReceived }: BodyListener): void {
  const key = Object.getOwnPropertySymbols(request).find((symbol) => symbol.description === "handler");
  const handler: unknown = key === undefined ? undefined : Reflect.get(request, key);
  if (typeof handler !== "object" || handler === null || !Object.isExtensible(handler)) return;
  addBefore(handler, "onBodySent", onSent);
  // Only if present: a handler with other methods belongs to an undici that has the channels.
  if (typeof Reflect.get(handler, "onData") === "function") addBefore(handler, "onData", onReceived);
}

/** Replaces a method of a handler by one that reports the chunk first. Adds the method if the handler lacks it. */
function addBefore(handler: object, name: string, listen: (chunk: Uint8Array) => void): void {
  const before: unknown = Reflect.get(handler, name);
  const method: Method = function (chunk) {
    listen(chunk);
    return typeof before === "function" ? Reflect.apply(before as Method, this, [chunk]) : undefined;
  };
  Reflect.defineProperty(handler, name, { value: method, configurable: true, writable: true, enumerable: true });
}

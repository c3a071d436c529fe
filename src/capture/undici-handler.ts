/**
 * The bodies of requests by an undici that has no channels for them: that of Node 20's fetch (undici 6). A request's handler is told of
 * every chunk; it is asked to tell us as well, and does with it what it did before.
 */

/** What is told of a request's bodies. */
export interface BodyListener {
  readonly onSent: (chunk: Uint8Array | string) => void;
  readonly onReceived: (chunk: Uint8Array) => void;
}

type Method = (this: unknown, chunk: Uint8Array) => unknown;

/** Listens to the handler of a request as `undici:request:create` gives it; does nothing where there is none to be found. */
export function watchHandler(request: object, { onSent, onReceived }: BodyListener): void {
  const key = Object.getOwnPropertySymbols(request).find((symbol) => symbol.description === "handler");
  const handler: unknown = key === undefined ? undefined : Reflect.get(request, key);
  if (typeof handler !== "object" || handler === null || !Object.isExtensible(handler)) return;
  addBefore(handler, "onBodySent", onSent);
  // Only where there is one: a handler that has other methods is of an undici that has the channels.
  if (typeof Reflect.get(handler, "onData") === "function") addBefore(handler, "onData", onReceived);
}

function addBefore(handler: object, name: string, listen: (chunk: Uint8Array) => void): void {
  const before: unknown = Reflect.get(handler, name);
  const method: Method = function (chunk) {
    listen(chunk);
    return typeof before === "function" ? Reflect.apply(before as Method, this, [chunk]) : undefined;
  };
  Reflect.defineProperty(handler, name, { value: method, configurable: true, writable: true, enumerable: true });
}

/** Lazy access to RxJS. */
import { createRequire } from "node:module";
import type * as RxJsModule from "rxjs";

type RxJs = typeof RxJsModule;

let loaded: RxJs | undefined;

/**
 * Returns RxJS. It is loaded on first use, because its two hundred files would slow down importing the package, and most scripts do not
 * need them. In Node, `import` and `require` return the same module, so Observables created here are instances of the caller's class.
 */
export function rxjs(): RxJs {
  return (loaded ??= createRequire(import.meta.url)("rxjs") as RxJs);
}

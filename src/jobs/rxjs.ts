import { createRequire } from "node:module";
import type * as RxJsModule from "rxjs";

type RxJs = typeof RxJsModule;

let loaded: RxJs | undefined;

/**
 * RxJS, loaded by the first who calls this: its two hundred files take more than half as long to load as all that importing the
 * package loads, and most scripts need none of them. Under Node `import` and `require` give the same module, so that an Observable made
 * here is one of the caller's.
 */
export function rxjs(): RxJs {
  return (loaded ??= createRequire(import.meta.url)("rxjs") as RxJs);
}

/** The small base model that the package contains. */
import { fileURLToPath } from "node:url";
import { packageFile } from "../../base/util/package-file.ts";

/** Identifier of the base model in the package, used by chat requests without a model. */
export const SHIPPED_BASE = "whetstone-tiny";

/** Returns the directory of the base model in the package. */
export function shippedDirectory(): string {
  return fileURLToPath(packageFile(`models/${SHIPPED_BASE}`));
}

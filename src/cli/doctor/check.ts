/** Results of the checks of `whetstone doctor`. */
import { messageOf } from "../../base/util/values.ts";

/** Result of one check of the installation or the service. */
export interface Check {
  readonly name: string;
  /** `warn`: works, but probably not as intended. */
  readonly status: "pass" | "warn" | "fail";
  readonly message: string;
  /** Command or change that repairs it; null for a passed check. */
  readonly remedy: string | null;
}

/** Returns a passed check. */
export function pass(name: string, message: string): Check {
  return { name, status: "pass", message, remedy: null };
}

/** Returns a check that failed or gives a warning, with its remedy. */
export function problem(status: "warn" | "fail", name: string, message: string, remedy: string): Check {
  return { name, status, message, remedy };
}

/** Returns the result of `run`, or a failed check if it throws. */
export async function guarded(name: string, remedy: string, run: () => Promise<Check>): Promise<Check> {
  try {
    return await run();
  } catch (error) {
    return problem("fail", name, messageOf(error), remedy);
  }
}

/** Validation of the address of a service and of counts, for the options of `connect`. */
import { ConfigError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";

/**
 * Checks the address of a service and removes slashes at its end.
 *
 * @throws ConfigError `E_CONFIG` for an address that is not http or https, or that has a user name, a password, a query or a fragment.
 */
export function readBaseUrl(text: string, param: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:"))
    refuse(param, "an http or https address", text.replace(/\/\/.*@/, "//…@"), ConfigError);
  // A key in the address would appear in every error message.
  if (url.username !== "" || url.password !== "")
    throw new ConfigError(`Expected \`${param}\` without user name and password; pass the key as \`apiKey\``, { param });
  if (url.search !== "" || url.hash !== "")
    throw new ConfigError(`Expected \`${param}\` without query and fragment, got \`${url.origin}${url.pathname}?…\``, { param });
  return (url.origin + url.pathname).replace(/\/+$/, "");
}

/** Whether a base URL names this machine: `localhost`, `127.*` or `[::1]`. */
export function isOnThisMachine(baseUrl: string): boolean {
  const { hostname } = new URL(baseUrl);
  return hostname === "localhost" || hostname === "[::1]" || /^127(?:\.\d{1,3}){3}$/u.test(hostname);
}

/** Checks an optional count. @throws ConfigError `E_CONFIG` if it is not an integer of at least `min`. */
export function checkCount(param: string, value: number | undefined, min: number): void {
  if (value === undefined || (Number.isSafeInteger(value) && value >= min)) return;
  refuse(param, `an integer of at least ${min}`, value, ConfigError);
}

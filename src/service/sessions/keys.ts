/** Keys of sessions: `whs-` and 256 bits in base64url, which are 43 characters. */
import { createHash, createHmac, randomBytes } from "node:crypto";

/** Prefix that distinguishes the key of a session from API keys and from the key of the service. */
const PREFIX = "whs-";
/** Source of a pattern that matches a key anywhere in a text. */
const KEY_PATTERN = String.raw`${PREFIX}[\w-]{43}`;
const WHOLE_KEY = new RegExp(`^${KEY_PATTERN}$`, "u");
const ANY_KEY = new RegExp(KEY_PATTERN, "gu");

/** Returns a new random key: 256 bits. */
export function createSessionKey(): string {
  return PREFIX + randomBytes(32).toString("base64url");
}

/** Returns the stored form of a session key: SHA-256, hexadecimal. A key of 256 random bits needs no slower hash. */
export function hashSessionKey(key: string): string {
  return createHash("sha256").update(key).digest("hex");
}

/**
 * Returns the key of a session that the service uses for requests of other principals, see `sessionPaths`. The key is derived from the key of
 * the service and not stored.
 */
export function serviceKeyOfSession(apiKey: string, sessionId: string): string {
  return PREFIX + createHmac("sha256", apiKey).update(sessionId).digest("base64url");
}

/** Whether a credential has the form of a session key. */
export function isSessionKey(credential: string): boolean {
  return WHOLE_KEY.test(credential);
}

/** Returns the text with session keys replaced by `[key]`. */
export function withoutSessionKeys(text: string): string {
  return text.replaceAll(ANY_KEY, "[key]");
}

/** Secrets of API keys: their form and their hash. */
import { createHash, randomBytes } from "node:crypto";

/** Prefix by which people and secret scanners recognize a key of this service. */
const PREFIX = "wsk_";
/** Prefix, then 256 bits as base64url. */
const PATTERN = /^wsk_[\w-]{43}$/u;

/** Returns a new random secret: 256 bits. */
export function createSecret(): string {
  return PREFIX + randomBytes(32).toString("base64url");
}

/**
 * Returns the stored form of a secret: SHA-256, hexadecimal. A secret of 256 random bits needs no slower hash. A lookup by hash compares
 * digests, so that its time reveals nothing about the secrets that exist.
 */
export function hashSecret(secret: string): string {
  return createHash("sha256").update(secret).digest("hex");
}

/** Whether a credential has the form of an API key. */
export function isSecret(credential: string): boolean {
  return PATTERN.test(credential);
}

/** Returns the text with the secrets of API keys replaced by `[key]`. */
export function withoutSecrets(text: string): string {
  return text.replaceAll(/wsk_[\w-]{43}/gu, "[key]");
}

/** Certificate of an HTTPS server, read again when its files change. */
import { unwatchFile, watchFile } from "node:fs";
import { readFile } from "node:fs/promises";
import type { Server } from "node:https";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { ConfigError } from "../../base/errors.ts";
import { messageOf } from "../../base/util/values.ts";
import type { ServiceLogger } from "../common/logger.ts";

/** Milliseconds between two checks of the files. Polling also notices files that are replaced through links, as in mounted secrets. */
const POLL_MS = 5000;

/** Paths of a certificate with its intermediate certificates, and of its key, in PEM format. */
interface CertificateFiles {
  readonly cert: string;
  readonly key: string;
}

/**
 * Reads a certificate and its key.
 *
 * @returns options of a server that speaks TLS 1.2 or newer.
 * @throws ConfigError `E_CONFIG` if a file cannot be read, is not in PEM format, or the key does not belong to the certificate.
 */
export async function readCertificate({ cert, key }: CertificateFiles): Promise<SecureContextOptions> {
  try {
    const options = { cert: await readFile(cert), key: await readFile(key), minVersion: "TLSv1.2" } as const;
    createSecureContext(options);
    return options;
  } catch (cause) {
    throw new ConfigError(
      `Expected the certificate '${cert}' and its key '${key}' in PEM format, without a passphrase: ${messageOf(cause)}`,
      { cause, param: "tls" },
    );
  }
}

/** Renewal of a server's certificate. */
export interface CertificateRenewal {
  /** Reads the files again. Open connections keep the certificate with which they began. Logs a failure, and keeps the certificate. */
  reload(): Promise<void>;
  /** Ends the checks of the files. */
  close(): void;
}

/** Reads the certificate of a server again whenever one of its files changes, until {@link CertificateRenewal.close}. */
export function renewCertificate(server: Server, files: CertificateFiles, logger: ServiceLogger): CertificateRenewal {
  const reload = async (): Promise<void> => {
    try {
      server.setSecureContext(await readCertificate(files));
      logger.info("The TLS certificate was read again", { cert: files.cert });
    } catch (error) {
      // Certificate and key change one after the other: the change of the second file completes the pair.
      logger.warn("The TLS certificate could not be read again; the service keeps the one it has", { error: messageOf(error) });
    }
  };
  const onChange = () => void reload();
  const paths = [files.cert, files.key];
  for (const path of paths) watchFile(path, { interval: POLL_MS, persistent: false }, onChange);
  return {
    reload,
    close() {
      for (const path of paths) unwatchFile(path, onChange);
    },
  };
}

/** Options for the operation of a service on a network: observation and TLS. */

/** Files of a TLS certificate, in PEM format. */
export interface TlsFiles {
  /** Path of the certificate, followed by the intermediate certificates. */
  readonly cert: string;
  /** Path of the private key, without a passphrase. */
  readonly key: string;
}

/** Options for the operation of a service on a network. */
export interface OperationOptions {
  /**
   * Whether the service collects metrics, which `GET /metrics` returns in the text format of Prometheus. Needs the package prom-client.
   *
   * @default false
   */
  readonly metrics?: boolean | undefined;
  /**
   * Whether the service records who created, trained, cancelled, downloaded and deleted what, in its database; `GET /v1/preview/audit-log`
   * returns the records. A request fails without an effect if its record cannot be written.
   *
   * @default false
   */
  readonly auditLog?: boolean | undefined;
  /**
   * Certificate and key for HTTPS (TLS 1.2 or newer). The service reads the files again when they change.
   *
   * @default none: the service speaks HTTP
   */
  readonly tls?: TlsFiles | undefined;
}

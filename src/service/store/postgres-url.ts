/** Addresses of Postgres databases. */
import { ConfigError } from "../../base/errors.ts";

/** Parsed address of a database. */
export interface PostgresAddress {
  /** Address for the driver, with the password and without the schema. */
  readonly connectionString: string;
  /** Schema of the service's tables; null = the connection's current schema. */
  readonly schema: string | null;
  /** Server and database for messages, without a password. */
  readonly where: string;
}

/** Names of schemas that need no quotes and are the same in every letter case. */
const SCHEMA_NAME = /^[a-z_][a-z0-9_]{0,62}$/u;

/**
 * Parses the address of a Postgres database: `postgres://user:password@host:port/database`, with the parameters of node-postgres and
 * `schema`.
 *
 * @throws ConfigError `E_CONFIG` for any other text; the message does not contain it, because it may have a password.
 */
export function parsePostgresUrl(text: string): PostgresAddress {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^postgres(?:ql)?:$/u.test(url.protocol)) {
    const got = url === null ? "a text that is no URL" : `a URL with '${url.protocol}'`;
    throw new ConfigError(`Expected \`database\` to be a URL of the form postgres://user:password@host:5432/database, got ${got}`, {
      param: "database",
    });
  }
  const schema = url.searchParams.get("schema");
  if (schema !== null && (!SCHEMA_NAME.test(schema) || schema.startsWith("pg_"))) {
    throw new ConfigError(
      `Expected the parameter \`schema\` of \`database\` to be 1 to 63 lower-case letters, digits and underscores, got '${schema.slice(0, 100)}'`,
      { param: "database" },
    );
  }
  url.searchParams.delete("schema");
  const host = url.searchParams.get("host") ?? (url.host === "" ? "of the environment" : url.host);
  return { connectionString: url.href, schema, where: `'${url.pathname.slice(1)}' at ${host}` };
}

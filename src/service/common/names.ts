/** Names of models, checkpoints and artifacts, as text in requests and answers. */
import { z } from "zod";
import { ArgumentError } from "../../base/errors.ts";

/** Owner of rows that the service's own key creates without naming an entity. */
export const DEFAULT_ENTITY = "local";

/** Qualified name of a model or an artifact. */
export interface QualifiedName {
  readonly entity: string;
  readonly project: string;
  readonly name: string;
}

/** Parsed policy name. A `step` of null stands for the newest checkpoint. */
export type PolicyName =
  | { readonly kind: "id"; readonly id: string; readonly step: number | null }
  | ({ readonly kind: "path"; readonly step: number | null } & QualifiedName);

/** Optional prefix of a name, such as `model:///` or `artifact:///`. */
const SCHEME = /^[a-z][a-z0-9+.-]*:\/\/\//i;
/** `entity/project/name`, with an optional step. */
const PATH = /^([^/:\s]+)\/([^/:\s]+)\/([^/:\s]+?)(?::(?:step(\d{1,9})|(latest)))?$/;
/** UUID, with an optional step. */
const ID = /^([0-9a-f-]{36})(?::(?:step(\d{1,9})|(latest)))?$/i;
/** `entity/project/name:vN`. */
const ARTIFACT = /^([^/:\s]+)\/([^/:\s]+)\/([^/:\s]+):v(\d{1,9})$/;
/** Schemes of URLs that a client may expect the service to fetch. */
const FETCH_SCHEMES = new Set(["http", "https", "file", "ftp", "data", "s3", "gs"]);

/** Returns `entity/project/name`. */
export function pathOf({ entity, project, name }: QualifiedName): string {
  return `${entity}/${project}/${name}`;
}

/** Returns `entity/project/name:stepN`. */
export function stepName(model: QualifiedName, step: number): string {
  return `${pathOf(model)}:step${step}`;
}

/**
 * Parses `entity/project/name[:stepN|:latest]` or a UUID with the same suffixes, optionally prefixed with `scheme:///`.
 *
 * @returns null if the text is not a policy name.
 */
export function parsePolicyName(text: string): PolicyName | null {
  const bare = text.replace(SCHEME, "");
  const toStep = (digits: string | undefined) => (digits === undefined ? null : Number(digits));
  const [, id, stepOfId] = ID.exec(bare) ?? [];
  if (id !== undefined && z.uuid().safeParse(id).success) return { kind: "id", id: id.toLowerCase(), step: toStep(stepOfId) };
  const [, entity, project, name, stepOfPath] = PATH.exec(bare) ?? [];
  if (entity === undefined || project === undefined || name === undefined) return null;
  return { kind: "path", entity, project, name, step: toStep(stepOfPath) };
}

/** Returns `artifact:///entity/project/name:vN`. */
export function artifactUrl(artifact: QualifiedName & { readonly version: number }): string {
  return `artifact:///${pathOf(artifact)}:v${artifact.version}`;
}

/**
 * Parses `artifact:///entity/project/name:vN`. The scheme is not checked, except that schemes to fetch from are rejected.
 *
 * @param param - Request field named in the error.
 * @throws ArgumentError `E_ARGUMENT` for any other text, and for `http`, `https`, `file`, `ftp`, `data`, `s3` and `gs` URLs: the service
 *   fetches nothing.
 */
export function parseArtifactUrl(url: string, param: string): QualifiedName & { readonly version: number } {
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(url)?.[1]?.toLowerCase();
  if (scheme !== undefined && FETCH_SCHEMES.has(scheme)) {
    throw new ArgumentError(
      `Expected \`${param}\` to be the URL of an artifact of this service, got a '${scheme}' URL. The service fetches nothing: upload the data as an artifact and pass 'artifact:///entity/project/name:vN'`,
      { param },
    );
  }
  const bare = SCHEME.test(url) ? url.replace(SCHEME, "") : "";
  const [, entity, project, name, version] = ARTIFACT.exec(bare) ?? [];
  if (entity === undefined || project === undefined || name === undefined) {
    throw new ArgumentError(`Expected \`${param}\` to be 'artifact:///entity/project/name:vN', got '${url.slice(0, 200)}'`, { param });
  }
  return { entity, project, name, version: Number(version) };
}

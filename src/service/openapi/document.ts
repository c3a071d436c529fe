/** The OpenAPI 3.1 document of the service. */
import { z } from "zod";
import { artifactPath, errorBody, namePart, uuid } from "../../base/schema/index.ts";
import { packageInfo } from "../common/package-info.ts";
import { ERRORS, type ErrorStatus } from "../http/errors.ts";
import { pathParametersOf, permittingScopes, TAGS, type Contents, type FormBody, type RouteSpec } from "./route.ts";
import { answerSchemas, joined, requestSchemas, type JsonSchema } from "./schemas.ts";

/** Object in the document. */
export type DocumentPart = { readonly [key: string]: unknown };

/** Headers that are always sent with an error, by status. */
const ERROR_HEADERS: Partial<Readonly<Record<ErrorStatus, string>>> = { 401: "WWW-Authenticate", 429: "Retry-After" };

/** Schema of a step in a path. */
const STEP = { type: "string", pattern: "^(?:[0-9]{1,9}|latest)$" };

/** Description and schema by path parameter. */
const PATH_PARAMETERS: Readonly<Record<string, { readonly description: string; readonly schema: z.ZodType | JsonSchema }>> = {
  model_id: { description: "Identifier of a trainable model.", schema: uuid },
  job_id: { description: "Identifier of a training job.", schema: uuid },
  session_id: { description: "Identifier of a session.", schema: uuid },
  entity: { description: "Name of an entity.", schema: namePart },
  key_id: { description: "Identifier of an API key.", schema: uuid },
  plan_id: { description: "Identifier of a rollout plan.", schema: uuid },
  task_id: { description: "Identifier of a rollout task.", schema: uuid },
  artifact_id: { description: "Identifier of an artifact version.", schema: uuid },
  file_id: { description: "Identifier of a file.", schema: { type: "string" } },
  fine_tuning_job_id: { description: "Identifier of a fine-tuning job.", schema: { type: "string" } },
  response_id: { description: "Identifier of a stored response.", schema: { type: "string" } },
  step: { description: "Step of a checkpoint, or `latest`.", schema: STEP },
  model: { description: "Name of a model. Slashes may be percent-encoded.", schema: { type: "string", minLength: 1 } },
  path: { description: "Path of a file inside the artifact. Slashes may be percent-encoded.", schema: artifactPath },
};

const IDEMPOTENCY_KEY = {
  name: "Idempotency-Key",
  in: "header",
  description: "The same key with the same body gives the same answer for a day.",
  schema: { type: "string", pattern: "^[!-~]{1,255}$" },
};

/** Returns the error statuses of a route. 405, 408, 417 and 431 are not listed, because they are decided before a route is reached. */
function errorStatuses(spec: RouteSpec): ErrorStatus[] {
  const { access, method, body, query, errors = [], validationStatus = 422 } = spec;
  const parameters = pathParametersOf(spec);
  const validates = body !== undefined || query !== undefined || parameters.some((name) => name === "step" || name === "path");
  const implied: ErrorStatus[] = [
    400,
    ...(access === "public" ? [] : ([401, 403] as const)),
    ...(parameters.length > 0 ? ([404] as const) : []),
    ...(body === undefined ? [] : ([413] as const)),
    // A body with the status 400 names a model, whose files or weights can be unusable.
    ...(validates ? [validationStatus, ...(validationStatus === 400 ? ([422] as const) : [])] : []),
    ...(body === undefined || body === "binary" || isForm(body) ? [] : ([429] as const)),
    500,
    503,
    ...(method === "GET" ? [] : ([507] as const)),
  ];
  return [...new Set([...implied, ...errors])].toSorted((a, b) => a - b);
}

function isForm(body: RouteSpec["body"]): body is FormBody {
  return typeof body === "object" && "form" in body;
}

/**
 * Returns the security requirements of a route: it permits keys with any of the listed scopes, and session keys if `session` is listed. Empty
 * for a public route.
 */
function securityOf(spec: RouteSpec): DocumentPart[] {
  const scopes = [...(permittingScopes(spec) ?? []), ...(spec.isForSessions === true ? ["session"] : [])];
  return scopes.flatMap((scope) => [{ key: [scope] }, { headerKey: [scope] }]);
}

/** Creates the document of the given routes. */
export function openApiDocument(routes: readonly RouteSpec[]): DocumentPart {
  const [requests, answers] = [requestSchemas(), answerSchemas()];
  const media = (contents: Contents, schemas: typeof requests): DocumentPart => {
    if (contents === "text") return { schema: { type: "string" } };
    return contents === "binary" ? {} : { schema: schemas.schemaOf(contents) };
  };

  function parametersFor(spec: RouteSpec): DocumentPart[] {
    const inPath = pathParametersOf(spec).map((name) => {
      const parameter = PATH_PARAMETERS[name];
      if (parameter === undefined) throw new Error(`The path parameter {${name}} has no description`);
      const { description, schema } = parameter;
      return { name, in: "path", required: true, description, schema: schema instanceof z.ZodType ? requests.schemaOf(schema) : schema };
    });
    const inQuery = Object.entries(spec.query?.shape ?? {}).map(([name, schema]) => {
      const { description, ...rest } = requests.schemaOf(schema as z.ZodType);
      return { name, in: "query", required: false, ...(description === undefined ? {} : { description }), schema: rest };
    });
    return [...inPath, ...inQuery, ...(spec.isIdempotent === true ? [IDEMPOTENCY_KEY] : [])];
  }

  function successOf({ answer, isIdempotent = false }: RouteSpec): DocumentPart {
    const {
      description,
      content,
      headers = {},
    } = answer instanceof z.ZodType ? { description: "Success.", content: { "application/json": answer } } : answer;
    const all = { ...headers, ...(isIdempotent ? { "Idempotency-Key": "The key of the request, if it had one." } : {}) };
    return {
      description,
      ...(Object.keys(all).length === 0
        ? {}
        : {
            headers: Object.fromEntries(
              Object.entries(all).map(([name, text]) => [name, { description: text, schema: { type: "string" } }]),
            ),
          }),
      content: Object.fromEntries(Object.entries(content).map(([type, contents]) => [type, media(contents, answers)])),
    };
  }

  function formMedia({ form, file }: FormBody): DocumentPart {
    const fields = Object.entries(form.shape).map(([name, schema]) => [name, requests.schemaOf(schema as z.ZodType)] as const);
    const required = [file, ...fields.filter(([name]) => form.shape[name]?.safeParse(undefined).success === false).map(([name]) => name)];
    const properties = { [file]: { type: "string", contentMediaType: "application/octet-stream" }, ...Object.fromEntries(fields) };
    return { schema: { type: "object", properties, required, additionalProperties: false } };
  }

  function bodyOf({ body }: RouteSpec): DocumentPart {
    if (body === undefined) return {};
    if (isForm(body)) return { requestBody: { required: true, content: { "multipart/form-data": formMedia(body) } } };
    const type = body === "binary" ? "application/octet-stream" : "application/json";
    return { requestBody: { required: body !== "binary", content: { [type]: media(body, requests) } } };
  }

  const operations = routes.map((spec) => {
    const parameters = parametersFor(spec);
    const request = { ...(parameters.length > 0 ? { parameters } : {}), ...bodyOf(spec) };
    const others = Object.entries(spec.otherAnswers ?? {}).map(([status, schema]) => {
      const { description } = ERRORS[Number(status) as ErrorStatus];
      return [status, { description, content: { "application/json": media(schema, answers) } }] as const;
    });
    return { spec, request, successes: { 200: successOf(spec), ...Object.fromEntries(others) } };
  });
  const { components, forRequest } = joined(
    requests.reachable(operations.map(({ request }) => request)),
    answers.reachable([routes.map((spec) => answers.schemaOf(spec.errorBody ?? errorBody)), operations.map(({ successes }) => successes)]),
  );
  const paths: Record<string, Record<string, DocumentPart>> = {};
  for (const { spec, request, successes } of operations) {
    const note = spec.isExtension === true ? "Extension of the interface." : "";
    const description = [spec.description ?? "", note].filter((text) => text !== "").join(" ");
    const errors = errorStatuses(spec).map((status) => [
      status,
      spec.errorBody === undefined
        ? { $ref: `#/components/responses/${ERRORS[status].type}${status}` }
        : errorPart(status, answers.schemaOf(spec.errorBody)),
    ]);
    (paths[spec.path] ??= {})[spec.method.toLowerCase()] = {
      operationId: spec.id,
      tags: [spec.tag],
      summary: spec.summary,
      ...(description === "" ? {} : { description }),
      security: securityOf(spec),
      ...forRequest(request),
      responses: { ...Object.fromEntries(errors), ...successes },
    };
  }
  const usedErrors = [...new Set(routes.flatMap(errorStatuses))].toSorted((a, b) => a - b);
  const { version, license } = packageInfo();
  return {
    openapi: "3.1.0",
    info: {
      title: "Whetstone",
      version,
      license: { name: license, identifier: license },
      description:
        "Chat completions, trainable models, checkpoints, training jobs and artifacts. Every GET route answers HEAD; OPTIONS lists the methods of a path in the header Allow. Bodies, lists and strings have upper bounds, which this document does not repeat.",
    },
    servers: [{ url: "/" }],
    security: [{ key: [] }, { headerKey: [] }],
    tags: TAGS.filter((tag) => routes.some((spec) => spec.tag === tag)).map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: {
        key: {
          type: "http",
          scheme: "bearer",
          description: "An API key: the key of the service, which has all scopes, a key with scopes, or the key of a session.",
        },
        headerKey: { type: "apiKey", in: "header", name: "x-api-key", description: "The same key, for clients of the Messages API." },
      },
      responses: Object.fromEntries(usedErrors.map((status) => [`${ERRORS[status].type}${status}`, errorPart(status)])),
      schemas: components,
    },
  };
}

/** Returns the description of an error response. */
function errorPart(status: ErrorStatus, schema: DocumentPart = { $ref: "#/components/schemas/ErrorBody" }): DocumentPart {
  const header = ERROR_HEADERS[status];
  return {
    description: ERRORS[status].description,
    ...(header === undefined ? {} : { headers: { [header]: { required: true, schema: { type: "string" } } } }),
    content: { "application/json": { schema } },
  };
}

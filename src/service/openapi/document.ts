/** The OpenAPI 3.1 document of the service, generated from the table of routes. */
import { z } from "zod";
import { artifactPath, errorBody, namePart, uuid } from "../../base/schema/index.ts";
import { packageInfo } from "../common/package-info.ts";
import { ERRORS, type ErrorStatus } from "../http/errors.ts";
import { pathParametersOf, permittingScopes, TAGS, type Contents, type FormBody, type RouteAnswer, type RouteSpec } from "./route.ts";
import { answerSchemas, joinComponents, requestSchemas, type DirectedSchemas, type JsonSchema } from "./schemas.ts";

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

/** Parameter of routes that support idempotency keys. */
const IDEMPOTENCY_KEY = {
  name: "Idempotency-Key",
  in: "header",
  description: "The same key with the same body gives the same answer for a day.",
  schema: { type: "string", pattern: "^[!-~]{1,255}$" },
};

/** Creates the document of the given routes. */
export function openApiDocument(routes: readonly RouteSpec[]): DocumentPart {
  const requests = requestSchemas();
  const answers = answerSchemas();
  // First all parts that refer to components, because the names of components in requests depend on all of them.
  const operations: Operation[] = routes.map((spec) => ({
    spec,
    request: requestPart(spec, requests),
    successes: successParts(spec, answers),
  }));
  const errorBodies = routes.map((spec) => answers.schemaOf(spec.errorBody ?? errorBody));
  const { components, forRequest } = joinComponents(
    requests.reachable(operations.map(({ request }) => request)),
    answers.reachable([errorBodies, operations.map(({ successes }) => successes)]),
  );
  const paths: Record<string, Record<string, DocumentPart>> = {};
  for (const { spec, request, successes } of operations) {
    const methods = (paths[spec.path] ??= {});
    methods[spec.method.toLowerCase()] = {
      ...headOf(spec),
      ...forRequest(request),
      responses: { ...errorParts(spec, answers), ...successes },
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
      responses: Object.fromEntries(usedErrors.map((status) => [errorName(status), errorPart(status)])),
      schemas: components,
    },
  };
}

/** Route with the parts of its operation that refer to components. */
interface Operation {
  readonly spec: RouteSpec;
  /** Parameters and body. */
  readonly request: DocumentPart;
  /** Responses that are not errors. */
  readonly successes: DocumentPart;
}

/** Returns the members of an operation that describe the route itself: names, texts and security. */
function headOf(spec: RouteSpec): DocumentPart {
  const note = spec.isExtension === true ? "Extension of the interface." : "";
  const description = [spec.description ?? "", note].filter((text) => text !== "").join(" ");
  return {
    operationId: spec.id,
    tags: [spec.tag],
    summary: spec.summary,
    ...(description === "" ? {} : { description }),
    security: securityOf(spec),
  };
}

/** Returns the error responses of a route by status. They refer to common components, unless the route has its own error body. */
function errorParts(spec: RouteSpec, schemas: DirectedSchemas): DocumentPart {
  const { errorBody: ownBody } = spec;
  const parts = errorStatuses(spec).map((status) => [
    status,
    ownBody === undefined ? { $ref: `#/components/responses/${errorName(status)}` } : errorPart(status, schemas.schemaOf(ownBody)),
  ]);
  return Object.fromEntries(parts) as DocumentPart;
}

/** Returns the name of the component of an error response. */
function errorName(status: ErrorStatus): string {
  return `${ERRORS[status].type}${status}`;
}

/** Returns the parameters and the body of a route. */
function requestPart(spec: RouteSpec, schemas: DirectedSchemas): DocumentPart {
  const parameters = parametersOf(spec, schemas);
  return { ...(parameters.length > 0 ? { parameters } : {}), ...bodyOf(spec, schemas) };
}

/** Returns the parameters of a route: in the path, in the query, and the idempotency key. */
function parametersOf(spec: RouteSpec, schemas: DirectedSchemas): DocumentPart[] {
  const inPath = pathParametersOf(spec).map((name) => {
    const parameter = PATH_PARAMETERS[name];
    if (parameter === undefined) throw new Error(`The path parameter {${name}} has no description`);
    const { description, schema } = parameter;
    return { name, in: "path", required: true, description, schema: schema instanceof z.ZodType ? schemas.schemaOf(schema) : schema };
  });
  const inQuery = Object.entries(spec.query?.shape ?? {}).map(([name, queryType]) => {
    const { description, ...schema } = schemas.schemaOf(queryType as z.ZodType);
    return { name, in: "query", required: false, ...(description === undefined ? {} : { description }), schema };
  });
  return [...inPath, ...inQuery, ...(spec.isIdempotent === true ? [IDEMPOTENCY_KEY] : [])];
}

/** Returns the body of a route; empty without one. */
function bodyOf({ body }: RouteSpec, schemas: DirectedSchemas): DocumentPart {
  if (body === undefined) return {};
  if (isForm(body)) return { requestBody: { required: true, content: { "multipart/form-data": formPart(body, schemas) } } };
  const type = body === "binary" ? "application/octet-stream" : "application/json";
  return { requestBody: { required: body !== "binary", content: { [type]: contentsPart(body, schemas) } } };
}

/** Returns the schema of a form: its file, and its other fields. */
function formPart({ form, file }: FormBody, schemas: DirectedSchemas): DocumentPart {
  const fields = Object.entries(form.shape).map(([name, fieldType]) => [name, schemas.schemaOf(fieldType as z.ZodType)] as const);
  const requiredFields = fields.map(([name]) => name).filter((name) => form.shape[name]?.safeParse(undefined).success === false);
  const properties = { [file]: { type: "string", contentMediaType: "application/octet-stream" }, ...Object.fromEntries(fields) };
  return { schema: { type: "object", properties, required: [file, ...requiredFields], additionalProperties: false } };
}

/** Returns the description of a body with a media type. */
function contentsPart(contents: Contents, schemas: DirectedSchemas): DocumentPart {
  if (contents === "text") return { schema: { type: "string" } };
  return contents === "binary" ? {} : { schema: schemas.schemaOf(contents) };
}

/** Returns the responses of a route that are not errors, by status. */
function successParts(spec: RouteSpec, schemas: DirectedSchemas): DocumentPart {
  const otherAnswers = Object.entries(spec.otherAnswers ?? {}).map(([status, schema]) => {
    const { description } = ERRORS[Number(status) as ErrorStatus];
    return [status, { description, content: { "application/json": contentsPart(schema, schemas) } }] as const;
  });
  return { 200: successPart(spec, schemas), ...Object.fromEntries(otherAnswers) };
}

/** Returns the response of a route with status 200. */
function successPart({ answer, isIdempotent = false }: RouteSpec, schemas: DirectedSchemas): DocumentPart {
  const isJson = answer instanceof z.ZodType;
  const { description, content, headers }: RouteAnswer = isJson
    ? { description: "Success.", content: { "application/json": answer } }
    : answer;
  const allHeaders = { ...headers, ...(isIdempotent ? { "Idempotency-Key": "The key of the request, if it had one." } : {}) };
  const headerParts = Object.entries(allHeaders).map(([name, text]) => [name, { description: text, schema: { type: "string" } }]);
  return {
    description,
    ...(headerParts.length === 0 ? {} : { headers: Object.fromEntries(headerParts) }),
    content: Object.fromEntries(Object.entries(content).map(([type, contents]) => [type, contentsPart(contents, schemas)])),
  };
}

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
    ...(validates ? [validationStatus] : []),
    ...(validates && validationStatus === 400 ? ([422] as const) : []),
    ...(body === undefined || body === "binary" || isForm(body) ? [] : ([429] as const)),
    500,
    503,
    ...(method === "GET" ? [] : ([507] as const)),
  ];
  return [...new Set([...implied, ...errors])].toSorted((a, b) => a - b);
}

/** Whether a body is a form. */
function isForm(body: RouteSpec["body"]): body is FormBody {
  return typeof body === "object" && "form" in body;
}

/**
 * Returns the security requirements of a route: it permits keys with any of the listed scopes, and session keys if `session` is listed.
 * Empty for a public route.
 */
function securityOf(spec: RouteSpec): DocumentPart[] {
  const scopes = [...(permittingScopes(spec) ?? []), ...(spec.isForSessions === true ? ["session"] : [])];
  return scopes.flatMap((scope) => [{ key: [scope] }, { headerKey: [scope] }]);
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

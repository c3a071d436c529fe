/** The routes that describe the interface of the service. */
import { z } from "zod";
import { openApiDocument, type DocumentPart } from "../openapi/document.ts";
import { documentPage } from "../openapi/page.ts";
import type { Route, RouteSpec } from "../openapi/route.ts";

/** Content security policy of the page, which runs no script and loads nothing. */
const PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const common = { method: "GET", tag: "Service", access: "public", isExtension: true } as const;

const DOCUMENT: RouteSpec = {
  ...common,
  path: "/openapi.json",
  id: "getOpenApi",
  summary: "Read this description as an OpenAPI 3.1 document",
  answer: z.record(z.string(), z.unknown()),
};

const PAGE: RouteSpec = {
  ...common,
  path: "/docs",
  id: "getDocs",
  summary: "Read this description as a page",
  answer: { description: "A page that loads nothing else.", content: { "text/html": "text" } },
};

/** Creates `GET /openapi.json` and `GET /docs`, which describe `others` and these two routes. */
export function descriptionRoutes(others: readonly RouteSpec[]): Route[] {
  // Created at the first request, because most services are never asked for it.
  let created: DocumentPart | undefined;
  const document = () => (created ??= openApiDocument([...others, DOCUMENT, PAGE]));
  return [
    { ...DOCUMENT, handle: (c) => c.json(document()) },
    { ...PAGE, handle: (c) => c.html(documentPage(document()), 200, { "Content-Security-Policy": PAGE_POLICY }) },
  ];
}

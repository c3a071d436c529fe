/** HTML page of the OpenAPI document, rendered on the server without scripts or external resources. */
import { html, raw } from "hono/html";
import type { DocumentPart } from "./document.ts";

/** Rendered HTML. */
type Html = ReturnType<typeof html>;

/** Style sheet of the page. */
const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; color-scheme: light dark }
code, pre { font: 14px/1.4 ui-monospace, monospace } pre { overflow: auto; padding: .75rem; border: 1px solid #8884; border-radius: 6px }
details { border: 1px solid #8884; border-radius: 6px; margin: .5rem 0; padding: .5rem .75rem } summary { cursor: pointer }
table { border-collapse: collapse; width: 100% } td, th { border-top: 1px solid #8884; padding: .25rem .5rem; text-align: left; vertical-align: top }
.method { display: inline-block; font-weight: 600; min-width: 4.5rem } .note { color: #888 }`;

/** Renders the document as an HTML page. */
export function documentPage(document: DocumentPart): string {
  const { title, version, description } = asPart(document["info"]);
  const schemas = Object.entries(asPart(asPart(document["components"])["schemas"]));
  const tags = asList(document["tags"]).map((tag) => asText(asPart(tag)["name"]));
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width" />
        <title>${asText(title)} HTTP interface</title>
        <style>
          ${raw(STYLE)}
        </style>
      </head>
      <body>
        <h1>${asText(title)} <span class="note">${asText(version)}</span></h1>
        <p>${asText(description)} This page is <a href="/openapi.json">the OpenAPI document</a>.</p>
        ${tags.map(
          (tag) =>
            html`<h2>${tag}</h2>
              ${operationsOf(document, tag)}`,
        )}
        <h2>Schemas</h2>
        ${schemas.map(
          ([name, schema]) =>
            html`<details id="${name}">
              <summary><code>${name}</code></summary>
              ${schemaBlock(schema)}
            </details>`,
        )}
      </body>
    </html>`;
  return String(page);
}

/** Returns an object of the document; empty for a value of another type, like the functions below. */
const asPart = (value: unknown): DocumentPart => (typeof value === "object" && value !== null ? (value as DocumentPart) : {});
/** Returns a list of the document. */
const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
/** Returns a text of the document. */
const asText = (value: unknown): string => (typeof value === "string" ? value : "");
/** Returns the name at the end of a reference such as `#/components/schemas/Model`; empty for any other value. */
const referencedName = (reference: unknown): string => asText(reference).split("/").at(-1) ?? "";

/** Renders a schema as JSON, with references as links to their components. */
function schemaBlock(schema: unknown): Html {
  const pieces = JSON.stringify(schema, null, 2).split(/("#\/components\/schemas\/\w+")/u);
  return html`<pre>
${pieces.map((piece) => {
  if (!piece.startsWith('"#/components/')) return piece;
  const name = referencedName(JSON.parse(piece));
  return html`<a href="#${name}">${name}</a>`;
})}</pre>`;
}

/** Renders the contents of a body by media type. */
function contentRows(content: unknown): Html[] {
  return Object.entries(asPart(content)).map(([type, media]) => {
    const { schema } = asPart(media);
    const name = referencedName(asPart(schema)["$ref"]);
    const inlineSchema = schema === undefined ? "bytes" : schemaBlock(schema);
    const shown = name === "" ? inlineSchema : html`<a href="#${name}">${name}</a>`;
    return html`<div><code>${type}</code> ${shown}</div>`;
  });
}

/** Renders a response, which may be a reference to a component. */
function responseRow(status: string, response: unknown, document: DocumentPart): Html {
  const name = referencedName(asPart(response)["$ref"]);
  const components = asPart(asPart(document["components"])["responses"]);
  const { description, content } = asPart(name === "" ? response : components[name]);
  return html`<tr>
    <td><code>${status}</code></td>
    <td>${asText(description)}</td>
    <td>${contentRows(content)}</td>
  </tr>`;
}

/** Renders a parameter. */
function parameterRow(parameter: unknown): Html {
  const { name, in: location, description, schema, required } = asPart(parameter);
  return html`<tr>
    <td><code>${asText(name)}</code></td>
    <td>${asText(location)}${required === true ? "" : ", optional"}</td>
    <td>${asText(description)} <code>${JSON.stringify(schema)}</code></td>
  </tr>`;
}

/** Renders an operation with its parameters, body and answers, folded. */
function operationBlock(path: string, method: string, value: unknown, document: DocumentPart): Html {
  const { operationId, summary, description, parameters, requestBody, responses, security } = asPart(value);
  return html`<details id="${asText(operationId)}">
    <summary><span class="method">${method.toUpperCase()}</span> <code>${path}</code> ${asText(summary)}</summary>
    <p>${asText(description)} ${asList(security).length === 0 && security !== undefined ? "Needs no key." : ""}</p>
    ${
      parameters === undefined
        ? ""
        : html`<h4>Parameters</h4>
            <table>
              ${asList(parameters).map(parameterRow)}
            </table>`
    }
    ${
      requestBody === undefined
        ? ""
        : html`<h4>Body</h4>
            ${contentRows(asPart(requestBody)["content"])}`
    }
    <h4>Answers</h4>
    <table>
      ${Object.entries(asPart(responses)).map(([status, response]) => responseRow(status, response, document))}
    </table>
  </details>`;
}

/** Renders the operations with a tag. */
function operationsOf(document: DocumentPart, tag: string): Html[] {
  return Object.entries(asPart(document["paths"])).flatMap(([path, methods]) =>
    Object.entries(asPart(methods))
      .filter(([, value]) => asList(asPart(value)["tags"]).includes(tag))
      .map(([method, value]) => operationBlock(path, method, value, document)),
  );
}

/** HTML documents of the dashboard, with their Content-Security-Policy. */
import { htmlDocument } from "../report/html.ts";

/** HTML document with its Content-Security-Policy. */
interface HtmlPage {
  readonly html: string;
  readonly policy: string;
}

/** Width of the page on phones. */
const VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">';
/** Part of the policy that all pages share: nothing is loaded, and no other page can embed them. */
const COMMON = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/**
 * Returns the page of the dashboard. The policy allows only the script and the style sheet of the page by a nonce: no other file of the
 * service, such as an uploaded artifact, can run as a script. The page connects to this service alone.
 *
 * @param nonce - Random text, another one for each response.
 */
export function pageHtml(nonce: string): HtmlPage {
  const policy = `${COMMON}; script-src 'nonce-${nonce}'; style-src 'nonce-${nonce}'; connect-src 'self'; img-src data:`;
  const head = [
    VIEWPORT,
    '<meta name="color-scheme" content="light dark">',
    '<link rel="icon" href="data:,">',
    "<title>Whetstone</title>",
    `<link rel="stylesheet" href="page.css" nonce="${nonce}">`,
    `<script type="module" src="page.js" nonce="${nonce}"></script>`,
  ];
  const body = [
    "<noscript>The dashboard is drawn by a script of this service. Allow scripts for this address to see it.</noscript>",
    '<div id="page"></div>',
  ];
  return { html: htmlDocument(head, body), policy };
}

/** Returns the answer to a login link that is not valid. */
export function loginPage(): HtmlPage {
  const body = [
    "<h1>This link is no longer valid</h1>",
    "<p>A link works once, for one minute. Run <code>whetstone ui</code> for a new one.</p>",
  ];
  return { html: htmlDocument([VIEWPORT, "<title>Link expired · Whetstone</title>"], body), policy: COMMON };
}

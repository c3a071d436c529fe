/** Values of the XML answers of S3. Elements in them are not nested in elements of the same name, so no general parser is needed. */

/** Returns the contents of the first element with a name that has no attributes; null without one. */
export function elementOf(xml: string, name: string): string | null {
  const [, text] = new RegExp(`<${name}>([^]*?)</${name}>`, "u").exec(xml) ?? [];
  return text === undefined ? null : unescapeXml(text.trim());
}

/** Returns the XML of all elements with a name that has no attributes. */
export function elementsOf(xml: string, name: string): string[] {
  return [...xml.matchAll(new RegExp(`<${name}>([^]*?)</${name}>`, "gu"))].map(([, text = ""]) => text);
}

/** Named character references. */
const ENTITIES: Readonly<Record<string, string>> = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

/** Replaces character references. */
function unescapeXml(text: string): string {
  return text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/giu, (whole, hex?: string, decimal?: string, name?: string) => {
    if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
    if (decimal !== undefined) return String.fromCodePoint(Number(decimal));
    return ENTITIES[name ?? ""] ?? whole;
  });
}

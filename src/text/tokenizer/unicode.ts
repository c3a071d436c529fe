/**
 * Unicode as in the reference, Hugging Face's `tokenizers`, although Node has a later version. The reference has Unicode 16 in regular
 * expressions (Oniguruma) and Unicode 12 in normalizers. The tables below were found by comparing `tokenizers` 0.23.3 with Node 20.20
 * (Unicode 17) for every code point; they have no effect on a Node with an older version.
 */

/** Code points that Unicode 17 assigns, in hexadecimal. */
const ASSIGNED_LATER =
  "88f c5c cdc 1acf-1add 1ae0-1aeb 20c1 2b96 a7ce-a7cf a7d2 a7d4 a7f1 fbc3-fbd2 fd90-fd91 fdc8-fdce 10940-10959 " +
  "10ec5-10ec7 10ed0-10ed8 10efa-10efb 11b60-11b67 11db0-11ddb 11de0-11de9 16ea0-16eb8 16ebb-16ed3 16ff2-16ff6 " +
  "187f8-187ff 18d09-18d1e 18d80-18df2 1ccfa-1ccfc 1ceba-1ced0 1cee0-1cef0 1e6c0-1e6de 1e6e0-1e6f5 1e6fe-1e6ff " +
  "1f6d8 1f777-1f77a 1f8d0-1f8d8 1fa54-1fa57 1fa8a 1fa8e 1fac8 1facd 1faea 1faef 1fbfa 2b73a-2b73f 2cea2-2cead " +
  "323b0-33479";

/** Code points that take part in canonical normalization since Unicode 13: marks, and characters that compose. */
const NORMALIZED_LATER =
  "7fd 897-89f 8ca-8d3 9fe c3c d3b-d3c eba 1715 1abf-1add 1ae0-1aeb 1df6-1dfa a82c 105c9 105d2 105da 105e4 " +
  "10d24-10d27 10d69-10d6d 10eab-10eac 10efa-10efb 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 11382-11385 " +
  "1138b 1138e 11390-11391 113c2 113c5 113c7-113c8 113ce-113d0 1145e 11839-1183a 11935 11938 1193d-1193e 11943 " +
  "119e0 11a34 11a47 11a99 11d42 11d44-11d45 11d97 11f41-11f42 1611e 16121-16129 1612f 16d63 16d67-16d6a " +
  "16ff0-16ff1 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e5ee-1e5ef 1e6e3 1e6e6 1e6ee-1e6ef 1e6f5";

/** Code points that have a compatibility decomposition since Unicode 12.1. */
const COMPATIBLE_LATER = "32ff a7f1-a7f4 ab69 10781-10785 10787-107b0 107b2-107ba 1ccd6-1ccf9 1e030-1e06d 1f16c 1fbf0-1fbf9";

/** Returns the class of a regular expression with these code points, as for {@link ASSIGNED_LATER}. */
function characterClass(ranges: string): string {
  const escaped = ranges.split(" ").map((range) =>
    range
      .split("-")
      .map((code) => String.raw`\u{${code}}`)
      .join("-"),
  );
  return `[${escaped.join("")}]`;
}

const assignedLater = new RegExp(characterClass(ASSIGNED_LATER), "gu");
// Noncharacters, which no version of Unicode assigns, of one and of two UTF-16 units.
const UNASSIGNED = "\ufdd0";
const UNASSIGNED_SUPPLEMENTARY = "\u{1fffe}";
// U+0295 was a lowercase letter in Unicode 16 and has become caseless; U+0250 still is a lowercase letter.
const [CASELESS, LOWERCASE] = ["\u0295", "\u0250"];

/**
 * Returns a text of the same length for matching with regular expressions: characters with other properties in the reference are replaced
 * by characters with the reference's properties.
 */
export function asMatched(text: string): string {
  const known = text.replace(assignedLater, (character) => (character.length === 1 ? UNASSIGNED : UNASSIGNED_SUPPLEMENTARY));
  return known.includes(CASELESS) ? known.replaceAll(CASELESS, LOWERCASE) : known;
}

const canonical = new RegExp(`(${characterClass(NORMALIZED_LATER)}+)`, "u");
const compatible = new RegExp(`(${characterClass(`${NORMALIZED_LATER} ${COMPATIBLE_LATER}`)}+)`, "u");

/** Normalization forms by the names of normalizers. */
export const FORMS: ReadonlySet<string> = new Set(["NFC", "NFD", "NFKC", "NFKD"]);

/**
 * Normalizes a text as the reference does. Characters that the reference does not know stay as they are, and the text before and after them
 * is normalized separately.
 *
 * @param form - One of {@link FORMS}.
 */
export function normalizeText(text: string, form: string): string {
  const unknownRun = form.startsWith("NFK") ? compatible : canonical;
  if (!unknownRun.test(text)) return text.normalize(form);
  // The runs of unknown characters are captured, so that every second part is one of them.
  return text
    .split(unknownRun)
    .map((part, index) => (index % 2 === 1 ? part : part.normalize(form)))
    .join("");
}

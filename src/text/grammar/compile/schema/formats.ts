/** Values of the keyword `format` as regular expressions, and as ranges of integers. */

/** Every date except 29 February, and 29 February of leap years. */
const DAY = [
  String.raw`\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))`,
  String.raw`(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29`,
].join("|");
const DATE = `(?:${DAY})`;
const CLOCK = String.raw`(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?`;
const ZONE = String.raw`(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`;
const TIME = `${CLOCK}${ZONE}`;

const DURATION_TIME = String.raw`T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)`;
const DURATION_DATE = String.raw`(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)`;

const OCTET = String.raw`(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`;
const IPV4 = `${OCTET}(?:\\.${OCTET}){3}`;
/** 16 bits of an IPv6 address. */
const GROUP = "[0-9A-Fa-f]{1,4}";
/** Last 32 bits of an IPv6 address. */
const TAIL = `(?:${GROUP}:${GROUP}|${IPV4})`;
const IPV6 = [
  `(?:${GROUP}:){6}${TAIL}`,
  `::(?:${GROUP}:){5}${TAIL}`,
  ...[4, 3, 2, 1, 0].map((after, at) => `(?:(?:${GROUP}:){0,${at}}${GROUP})?::(?:${GROUP}:){${after}}${TAIL}`),
  `(?:(?:${GROUP}:){0,5}${GROUP})?::${GROUP}`,
  `(?:(?:${GROUP}:){0,6}${GROUP})?::`,
].join("|");

const HEX = "[0-9A-Fa-f]";
const ALNUM = "[A-Za-z0-9]";
/** Letter, digit or hyphen. */
const LDH = "[A-Za-z0-9-]";
/** Label of at most 63 characters, without hyphens in both the third and the fourth position. */
const LABEL = `${ALNUM}(?:${LDH}?${ALNUM}|${LDH}(?:${ALNUM}|-)${ALNUM}|${LDH}(?:${ALNUM}${LDH}|-${ALNUM})${LDH}{0,58}${ALNUM})?`;
const HOSTNAME = `${LABEL}(?:\\.${LABEL})*`;
const ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const MAIL_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?";
const EMAIL = `${ATOM}(?:\\.${ATOM})*@(?:${MAIL_LABEL}\\.)+${MAIL_LABEL}`;

// Parts of a URI, with the names of RFC 3986 where it has one.
/** Unreserved characters and sub-delimiters. */
const URI_CHARACTERS = "A-Za-z0-9._~!$&'()*+,;=\\-";
const ESCAPE = `%${HEX}{2}`;
const PCHAR = `(?:[${URI_CHARACTERS}:@]|${ESCAPE})`;
const AUTHORITY = `(?:(?:[${URI_CHARACTERS}:]|${ESCAPE})*@)?(?:\\[(?:${IPV6})\\]|(?:[${URI_CHARACTERS}]|${ESCAPE})*)(?::\\d*)?`;
const SEGMENTS = `(?:/${PCHAR}*)*`;
const QUERY_AND_FRAGMENT = `(?:\\?(?:${PCHAR}|[/?])*)?(?:#(?:${PCHAR}|[/?])*)?`;
/** Authority with a path, or a path that begins with `/`. */
const HIERARCHY = `//${AUTHORITY}${SEGMENTS}|/(?:${PCHAR}+${SEGMENTS})?`;
const URI = `[A-Za-z][A-Za-z0-9+.-]*:(?:${HIERARCHY}|${PCHAR}+${SEGMENTS})${QUERY_AND_FRAGMENT}`;
const RELATIVE = `(?:${HIERARCHY}|(?:[${URI_CHARACTERS}@]|${ESCAPE})+${SEGMENTS})?${QUERY_AND_FRAGMENT}`;

const POINTER = "(?:/(?:[^~/]|~[01])*)*";
const uuid = (version: string) => `${HEX}{8}-${HEX}{4}-${version}${HEX}{3}-[89ABab]${HEX}{3}-${HEX}{12}`;

/**
 * Regular expressions of whole strings, by format. Each describes the usual spelling of the format. Leap seconds, lower-case `t` and `z`,
 * `urn:uuid:`, quoted local parts, dots at the end of host names, and their internationalized labels (`xn--`), whose encoding no expression
 * describes, are excluded, although the standards allow them.
 *
 * @source RFC 3339 section 5.6 and appendix A, RFC 4122 section 3, RFC 9562 section 4, RFC 2673 section 3.2, RFC 4291 section 2.2, RFC 5321
 *   section 4.1.2, RFC 1123 section 2.1, RFC 5890 section 2.3.1, RFC 3986 appendix A, RFC 6901 section 3, RFC 6570 section 2.
 */
export const FORMATS: ReadonlyMap<string, string> = new Map([
  ["date", DATE],
  ["time", TIME],
  ["date-time", `${DATE}T${TIME}`],
  ["iso-time", `${CLOCK}${ZONE}?`],
  ["iso-date-time", `${DATE}T${CLOCK}${ZONE}?`],
  ["duration", `P(?:${DURATION_DATE}(?:${DURATION_TIME})?|${DURATION_TIME}|\\d+W)`],
  ["uuid", `${HEX}{8}(?:-${HEX}{4}){3}-${HEX}{12}`],
  ...[1, 2, 3, 4, 5, 6, 7, 8].map((version): [string, string] => [`uuid${version}`, uuid(String(version))]),
  ["ipv4", IPV4],
  ["ipv6", IPV6],
  ["hostname", HOSTNAME],
  ["email", EMAIL],
  ["uri", URI],
  ["uri-reference", `${URI}|${RELATIVE}`],
  ["uri-template", `(?:[^\\x00-\\x20\\x7f-\\x9f"'<>%\\\\^\`{|}]|${ESCAPE}|\\{[+#./;?&]?[A-Za-z0-9_]+(?:,[A-Za-z0-9_]+)*\\})*`],
  ["url", `(?:https?|ftp)://(?:[a-z0-9]+(?:-[a-z0-9]+)*\\.)+[a-z]{2,}(?::\\d{2,5})?(?:/(?:[${URI_CHARACTERS}:@/]|${ESCAPE})*)?`],
  ["json-pointer", POINTER],
  ["json-pointer-uri-fragment", "#(?:/(?:[A-Za-z0-9_.!$&'()*+,;:=@-]|%[0-9A-Fa-f]{2}|~[01])*)*"],
  ["relative-json-pointer", `(?:0|[1-9][0-9]*)(?:#|${POINTER})`],
  ["byte", "(?:[A-Za-z0-9+/]{4})+|(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)"],
]);

/** Formats for which the grammar allows more texts than the format, with the reason, for messages. The validation checks the rest. */
export const LOOSE_FORMATS: ReadonlyMap<string, string> = new Map([
  ["hostname", "names of more than 253 characters are found at the end"],
  ["regex", "regular expressions are parsed at the end"],
]);

/** Ranges of integer formats, both bounds included. They are bigints because the upper bound of `int64` is not a double. */
export const INTEGER_FORMATS: ReadonlyMap<string, readonly [low: bigint, high: bigint]> = new Map([
  ["int32", [-(2n ** 31n), 2n ** 31n - 1n]],
  ["int64", [-(2n ** 63n), 2n ** 63n - 1n]],
]);

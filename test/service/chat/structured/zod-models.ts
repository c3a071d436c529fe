/** Common Zod schemas, which clients convert to JSON schemas. */
import { z } from "zod";

const Person = z.object({ name: z.string(), age: z.int() }).meta({ id: "Person", title: "A person" });
const Color = z.enum(["red", "green", "blue"]);
const Level = { Low: 1, High: 2 } as const;
const Category = z.object({
  name: z.string(),
  get children() {
    return z.array(Category);
  },
});
const Linked = z.object({
  value: z.number(),
  get next(): z.ZodNullable<typeof Linked> {
    return z.nullable(Linked);
  },
});
const json: z.ZodType = z.lazy(() => z.union([z.string(), z.number(), z.boolean(), z.null(), z.array(json), z.record(z.string(), json)]));

/** Schemas by name. */
export const ZOD_MODELS: Readonly<Record<string, z.ZodType>> = {
  string: z.string(),
  strings: z.object({ a: z.string().min(1), b: z.string().max(5), c: z.string().length(3), d: z.string().nonempty().max(40) }),
  formats1: z.object({ a: z.email(), b: z.url(), c: z.uuid(), d: z.guid() }),
  formats2: z.object({ a: z.uuidv4(), b: z.uuidv6(), c: z.uuidv7(), d: z.nanoid() }),
  formats3: z.object({ a: z.cuid(), b: z.cuid2(), c: z.ulid(), d: z.xid(), e: z.ksuid() }),
  formats4: z.object({ a: z.ipv4(), b: z.ipv6(), c: z.cidrv4(), d: z.cidrv6() }),
  formats5: z.object({ a: z.base64(), b: z.base64url(), c: z.e164(), d: z.emoji() }),
  formats6: z.object({ a: z.hostname(), b: z.hex(), c: z.mac(), d: z.jwt() }),
  hashes: z.object({ a: z.hash("sha256"), b: z.hash("md5") }),
  dates: z.object({ a: z.iso.date(), b: z.iso.time(), c: z.iso.datetime(), d: z.iso.duration() }),
  datetimes: z.object({
    a: z.iso.datetime({ offset: true }),
    b: z.iso.datetime({ local: true }),
    c: z.iso.datetime({ precision: 3 }),
    d: z.iso.time({ precision: -1 }),
  }),
  httpUrl: z.object({ a: z.httpUrl(), b: z.url({ protocol: /^https?$/, hostname: z.regexes.domain }) }),
  emails: z.object({
    a: z.email({ pattern: z.regexes.html5Email }),
    b: z.email({ pattern: z.regexes.rfc5322Email }),
    c: z.email({ pattern: z.regexes.unicodeEmail }),
  }),
  oldChains: z.object({ a: z.string().email(), b: z.string().uuid(), c: z.string().url().max(200), d: z.string().datetime() }),
  emailWithLength: z.string().email().min(6).max(60),
  regexes: z.object({ a: z.string().regex(/^[a-z]+$/), b: z.string().regex(/\d{3}/), c: z.string().regex(/^(a|b)c?$/) }),
  regexAndLength: z.object({
    slug: z
      .string()
      .regex(/^[a-z0-9-]+$/)
      .min(3)
      .max(40),
    id: z
      .string()
      .regex(/^[A-Z]\w*$/)
      .max(20),
  }),
  severalRegexes: z.string().regex(/[A-Z]/).regex(/[a-z]/).regex(/\d/).min(8).max(16),
  lookaheads: z.string().regex(/^(?=.*[A-Z])(?=.*\d)(?!.*\s).{8,16}$/),
  caseInsensitive: z.string().regex(/^abc$/i),
  affixes: z.object({
    a: z.string().startsWith("sk-"),
    b: z.string().endsWith(".ts").max(20),
    c: z.string().includes("@"),
    d: z.string().startsWith("a").endsWith("z").includes("m"),
  }),
  cases: z.object({ a: z.string().lowercase(), b: z.string().uppercase().min(2), c: z.string().trim().toLowerCase() }),
  templates: z.templateLiteral(["id-", z.number(), z.enum(["x", "y"])]),
  numbers: z.object({
    a: z.number(),
    b: z.number().min(0).max(1),
    c: z.number().positive(),
    d: z.number().negative(),
    e: z.number().gt(2).lt(3),
  }),
  integers: z.object({ a: z.int(), b: z.int32(), c: z.uint32(), d: z.number().int().min(1).max(10), e: z.int().nonnegative() }),
  floats: z.object({ a: z.float32(), b: z.float64() }),
  multiples: z.object({
    a: z.number().multipleOf(0.5).min(0).max(100),
    b: z.int().multipleOf(25),
    c: z.number().step(0.01).min(-5).max(5),
    d: z.int().multipleOf(3).multipleOf(4),
  }),
  boolean: z.boolean(),
  null: z.null(),
  any: z.object({ a: z.any(), b: z.unknown(), c: z.array(z.any()) }),
  literals: z.object({ a: z.literal("x"), b: z.literal([1, "two", true]), c: z.literal(null) }),
  enums: z.object({ a: Color, b: z.enum(Level), c: Color.exclude(["red"]), d: Color.optional() }),
  object: Person,
  strictObject: z.strictObject({ a: z.string(), b: z.number().optional() }),
  looseObject: z.looseObject({ a: z.string() }),
  catchall: z.object({ a: z.string() }).catchall(z.number()),
  optional: z.object({ a: z.string().optional(), b: z.number().nullish(), c: z.string().nullable() }),
  defaults: z.object({ a: z.string().default("x"), b: z.number().prefault(3), c: z.boolean().catch(false) }),
  partial: z.object({ a: z.string(), b: z.number() }).partial(),
  extended: Person.extend({ email: z.email() }),
  picked: Person.pick({ name: true }),
  nested: z.object({ person: Person, people: z.array(Person), maybe: Person.optional() }),
  reused: z.object({ a: Color, b: Color, c: z.array(Color) }),
  array: z.array(z.string()),
  arrays: z.object({
    a: z.array(z.int()).min(1),
    b: z.array(z.boolean()).max(2),
    c: z.array(z.number()).length(2),
    d: z.array(z.array(z.string())),
  }),
  tuple: z.tuple([z.string(), z.number()]),
  tupleRest: z.tuple([z.string(), z.number()], z.boolean()),
  tupleOptional: z.tuple([z.string(), z.number().optional()]),
  record: z.record(z.string(), z.number()),
  recordEnum: z.record(Color, z.int()),
  partialRecord: z.partialRecord(Color, z.int()),
  recordPattern: z.record(z.string().regex(/^[a-z]{2}$/), z.string()),
  recordFormat: z.record(z.uuid(), z.boolean()),
  recordLength: z.record(z.string().min(2).max(6), z.int()),
  recordLiteral: z.record(z.literal(["a", "b"]), z.string()),
  union: z.union([z.string(), z.number(), z.null()]),
  unionObjects: z.union([z.object({ a: z.string() }), z.object({ b: z.number() })]),
  xor: z.xor([z.object({ a: z.string() }), z.object({ b: z.number() })]),
  discriminated: z.discriminatedUnion("type", [
    z.object({ type: z.literal("a"), x: z.string() }),
    z.object({ type: z.literal("b"), y: z.number() }),
    z.object({ type: z.literal(["c", "d"]) }),
  ]),
  discriminatedDefaults: z.discriminatedUnion("type", [
    z.object({ type: z.literal("a").default("a"), x: z.string() }),
    z.object({ type: z.literal("b").default("b") }),
  ]),
  discriminatedNested: z.discriminatedUnion("type", [
    z.object({ type: z.literal("a") }),
    z.discriminatedUnion("code", [
      z.object({ type: z.literal("b"), code: z.literal(1) }),
      z.object({ type: z.literal("b"), code: z.literal(2), text: z.string() }),
    ]),
  ]),
  intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
  intersectionOverlap: z.object({ a: z.string().min(2) }).and(z.object({ a: z.string().max(4), b: z.int() })),
  intersectionUnion: z.object({ id: z.int() }).and(z.union([z.object({ a: z.string() }), z.object({ b: z.boolean() })])),
  recursive: Category,
  linked: Linked,
  jsonValue: z.json(),
  lazy: z.object({ value: json }),
  pipe: z.object({
    a: z.string().pipe(z.string().min(2)),
    b: z
      .string()
      .transform((value) => value.length)
      .pipe(z.int()),
  }),
  codec: z.codec(z.iso.datetime(), z.string(), { decode: (value) => value, encode: (value) => value }),
  stringbool: z.stringbool(),
  coerced: z.object({ a: z.coerce.number(), b: z.coerce.string(), c: z.coerce.boolean() }),
  preprocess: z.preprocess((value) => value, z.int().min(2)),
  refined: z.object({ a: z.string().refine((value) => value !== "never") }),
  branded: z.object({ id: z.uuid().brand("Id") }),
  readonly: z.object({ a: z.array(z.string()).readonly() }).readonly(),
  described: z.object({
    a: z
      .string()
      .describe("d")
      .meta({ examples: ["x"], deprecated: true }),
    b: z.int().meta({ title: "B" }),
  }),
  never: z.object({ a: z.string(), b: z.never().optional() }),
  nonoptional: z.object({ a: z.string().optional().nonoptional() }),
  nullableEnum: z.object({ a: Color.nullable(), b: z.literal("x").nullable(), c: Person.nullable() }),
  exclusive: z.object({ a: z.number().gt(0), b: z.int().lt(10).gt(-10), c: z.number().gte(0.5).lt(1.5) }),
  file: z.object({ name: z.string(), mime: z.string() }),
  address: z.object({
    street: z.string().min(1).max(60),
    zip: z.string().regex(/^\d{5}(-\d{4})?$/),
    country: z.enum(["DE", "US"]).default("DE"),
  }),
  money: z.object({ amount: z.number().multipleOf(0.01).min(0).max(10000), currency: z.string().regex(/^[A-Z]{3}$/) }),
  agentStep: z.object({
    thought: z.string().max(200),
    action: z.discriminatedUnion("tool", [
      z.object({ tool: z.literal("search"), query: z.string().min(1), limit: z.int().min(1).max(50).default(10) }),
      z.object({ tool: z.literal("open"), url: z.url() }),
      z.object({ tool: z.literal("finish"), answer: z.string() }),
    ]),
  }),
  extraction: z.object({
    entities: z.array(z.object({ text: z.string(), kind: z.enum(["person", "place"]), confidence: z.number().min(0).max(1) })),
  }),
  classification: z.object({ label: Color, scores: z.record(Color, z.number().min(0).max(1)), reason: z.string().optional() }),
  judgement: z.object({ scores: z.tuple([z.int().min(1).max(5), z.int().min(1).max(5)]), winner: z.enum(["A", "B", "tie"]) }),
  event: z.object({ title: z.string(), start: z.iso.datetime(), end: z.iso.datetime().optional(), guests: z.array(z.email()).max(5) }),
  config: z.strictObject({ host: z.ipv4(), port: z.int().min(1).max(65535), env: z.record(z.string().regex(/^[A-Z_]+$/), z.string()) }),
  invoice: z.object({
    number: z.string(),
    lines: z.array(z.object({ sku: z.string().regex(/^[A-Z]{3}-\d{4}$/), quantity: z.int().positive() })).min(1),
  }),
  pagination: z.object({ items: z.array(Person), next: z.url().nullable(), total: z.int().nonnegative() }),
  quoted: z.object({ 'a"b': z.string(), "c d": z.int(), é: z.boolean(), $x: z.null() }),
  wide: z.object(Object.fromEntries(Array.from({ length: 120 }, (_, at) => [`field${at}`, z.string().optional()]))),
  deep: z.object({ a: z.object({ b: z.object({ c: z.object({ d: z.array(z.object({ e: Color })) }) }) }) }),
  map: z.array(z.tuple([z.string(), Person])),
  exact: z.object({ a: z.exactOptional(z.string()), b: z.int() }),
};

/** Options of `z.toJSONSchema` that change its output. */
export const ZOD_OPTIONS = (["draft-2020-12", "draft-7", "draft-4", "openapi-3.0"] as const).flatMap((target) =>
  (["output", "input"] as const).flatMap((io) =>
    (["inline", "ref"] as const).map((reused) => ({ target, io, reused, unrepresentable: "any" as const })),
  ),
);

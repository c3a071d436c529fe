import { describe, expect, test } from "vitest";
import { parseS3Location } from "../../../src/service/storage/s3/location.ts";
import { elementOf, elementsOf } from "../../../src/service/storage/s3/xml.ts";

const KEYS = { AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" };

describe("the location of an S3 storage", () => {
  test("takes endpoint and region from the URL, else from the environment, else those of AWS", () => {
    expect(parseS3Location("s3://models/team/a/?endpoint=http://localhost:9000/&region=eu", { ...KEYS, AWS_REGION: "us" })).toMatchObject({
      bucket: "models",
      prefix: "team/a",
      endpoint: "http://localhost:9000",
      region: "eu",
    });
    expect(
      parseS3Location("s3://models", { ...KEYS, AWS_REGION: "us", AWS_ENDPOINT_URL_S3: "https://minio", AWS_SESSION_TOKEN: "token" }),
    ).toMatchObject({ prefix: "", endpoint: "https://minio", region: "us", credentials: { sessionToken: "token" } });
    expect(parseS3Location("s3://models", KEYS)).toMatchObject({ endpoint: "https://s3.us-east-1.amazonaws.com", region: "us-east-1" });
  });

  test("has a URL that selects the same storage in another environment, without credentials", () => {
    const { url, ...location } = parseS3Location("s3://models/a", { ...KEYS, AWS_REGION: "eu", AWS_ENDPOINT_URL_S3: "https://minio" });
    expect(url).toBe("s3://models/a?endpoint=https%3A%2F%2Fminio&region=eu");
    expect(parseS3Location(url, KEYS)).toEqual({ url, ...location });
  });

  test.each([
    ["/data", "got '/data'"],
    ["https://models/a", "got 'https://models/a'"],
    ["s3://Models_1/a", "got 's3://"],
    ["s3://key:secret@models/a", "credentials"],
    ["s3://models/a//b", "prefix 'a//b'"],
    ["s3://models/a b", "prefix"],
    ["s3://models/a?acl=public", "parameter 'acl'"],
    ["s3://models/a?endpoint=minio:9000", "endpoint 'minio:9000'"],
    ["s3://models/a?endpoint=https://key:secret@minio", "endpoint 'https://…@minio'"],
  ])("rejects %s", (url, message) => {
    expect(() => parseS3Location(url, KEYS)).toThrow(expect.objectContaining({ code: "E_CONFIG", param: "storage" }));
    expect(() => parseS3Location(url, KEYS)).toThrow(message);
    if (url.includes("secret")) expect(() => parseS3Location(url, KEYS)).not.toThrow(/secret@/u);
  });

  test("rejects missing credentials by name", () => {
    expect(() => parseS3Location("s3://models", {})).toThrow("AWS_ACCESS_KEY_ID is not set");
    expect(() => parseS3Location("s3://models", { AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "" })).toThrow(
      "AWS_SECRET_ACCESS_KEY is not set",
    );
  });
});

test("reads escaped values of XML answers", () => {
  const xml = "<?xml version='1.0'?>\n<List><Contents><Key>a&amp;b&#x41;&#66;</Key></Contents><Contents>\n<Key>c</Key></Contents></List>";
  expect(elementsOf(xml, "Contents").map((entry) => elementOf(entry, "Key"))).toEqual(["a&bAB", "c"]);
  expect(elementOf(xml, "Owner")).toBe(null);
});

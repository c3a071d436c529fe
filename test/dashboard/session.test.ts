import { describe, expect, it } from "vitest";
import { BrowserSessions, type SessionRequest } from "../../src/lab/dashboard/session.ts";

const HOST = "127.0.0.1:8321";

/** Sessions on a clock that the test sets, with one session on {@link HOST}. */
function withSession() {
  const clock = { ms: 0 };
  const sessions = new BrowserSessions(() => clock.ms);
  const token = sessions.redeem(sessions.createCode().code, HOST)?.token;
  const check = (request: Partial<SessionRequest>) =>
    sessions.check({ method: "GET", host: HOST, token, origin: undefined, fetchSite: undefined, ...request });
  return { clock, sessions, check };
}

describe("a login code", () => {
  it("creates one session", () => {
    const sessions = new BrowserSessions();
    const { code } = sessions.createCode();
    expect(sessions.redeem(code, HOST)).toMatchObject({ maxAgeSeconds: 43_200 });
    expect(sessions.redeem(code, HOST)).toBeNull();
    expect(sessions.redeem("", HOST)).toBeNull();
  });

  it("expires after a minute", () => {
    const { clock, sessions } = withSession();
    const { code, expires } = sessions.createCode();
    expect(expires).toBe("1970-01-01T00:01:00.000Z");
    clock.ms = 60_000;
    expect(sessions.redeem(code, HOST)).toBeNull();
  });
});

describe("a session", () => {
  it.each<[string, Partial<SessionRequest>]>([
    ["a read by a client that sends no Origin", {}],
    ["a read by the page", { fetchSite: "same-origin" }],
    ["an address typed by the user", { fetchSite: "none" }],
    ["a write by the page", { method: "POST", origin: `http://${HOST}`, fetchSite: "same-origin" }],
    ["a write by the page behind a proxy with TLS", { method: "DELETE", origin: `https://${HOST}` }],
  ])("authorizes %s", (_, request) => {
    expect(withSession().check(request)).toBe(true);
  });

  it.each<[string, Partial<SessionRequest>, RegExp]>([
    ["a page of another site", { method: "POST", origin: "https://evil.example" }, /from https:\/\/evil\.example/],
    ["a page on another port of the same host", { method: "POST", origin: "http://127.0.0.1:9000" }, /from http:\/\/127\.0\.0\.1:9000/],
    ["a sandboxed page", { method: "POST", origin: "null" }, /from null/],
    ["a read by a page on another port, which sends no Origin", { fetchSite: "same-site" }, /for pages of this service/],
    ["a link on another site", { fetchSite: "cross-site" }, /for pages of this service/],
    ["a write without Origin and Sec-Fetch-Site", { method: "POST" }, /Origin or Sec-Fetch-Site/],
    ["a write that the user seems to have typed", { method: "POST", fetchSite: "none" }, /for pages of this service/],
    ["a name that was rebound to this address", { host: "evil.example:8321" }, /belongs to the host 127\.0\.0\.1:8321/],
    ["an unknown token", { token: "x" }, /is over/],
  ])("rejects %s", (_, request, reason) => {
    expect(withSession().check(request)).toMatch(reason);
  });

  it("is absent without a cookie", () => {
    expect(withSession().check({ token: undefined })).toBeNull();
  });

  it("ends after twelve hours", () => {
    const { clock, check } = withSession();
    clock.ms = 12 * 3_600_000 - 1;
    expect(check({})).toBe(true);
    clock.ms += 1;
    expect(check({})).toMatch(/is over/);
  });
});

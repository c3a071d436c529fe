/** Places of the dashboard and their addresses, as `#/runs/…?with=…`. */
import { useEffect, useState } from "preact/hooks";

/** Place in the dashboard, held by the address after `#`, so that a view can be linked and Back works. */
export interface PageRoute {
  /** Decoded parts of the path. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

/** Returns the address of a place; a value of null or "" is omitted. */
export function href(path: readonly string[], query: Readonly<Record<string, string | number | null>> = {}): string {
  const values = Object.entries(query).flatMap(([name, value]) => (value === null || value === "" ? [] : [[name, String(value)]]));
  const search = new URLSearchParams(values).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${search === "" ? "" : `?${search}`}`;
}

/**
 * Goes to a place with the query of the current one, except for some parameters; a value of "" removes a parameter. Replaces the current
 * entry of the history.
 */
export function goWith({ query }: PageRoute, path: readonly string[], values: Readonly<Record<string, string | number>> = {}): void {
  go(href(path, { ...Object.fromEntries(query), ...values }), { isReplaced: true });
}

/** Goes to a place. `isReplaced` replaces the current entry of the history, which arrow keys in a list would fill otherwise. */
export function go(address: string, { isReplaced = false }: { readonly isReplaced?: boolean } = {}): void {
  if (!isReplaced) {
    location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Parses the part of an address after `#`. */
export function parseRoute(hash: string): PageRoute {
  const [path = "", search = ""] = hash.replace(/^#\/?/u, "").split("?");
  const parts = path.split("/").filter((part) => part !== "");
  return { path: parts.map(decoded), query: new URLSearchParams(search) };
}

/** Decodes a part of a path; a malformed one stays as it is. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Returns the current place, which follows the address. */
export function useRoute(): PageRoute {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

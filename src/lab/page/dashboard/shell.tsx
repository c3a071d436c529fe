/** Frame of the dashboard's pages: navigation, state of the connection, theme. */
import type { ComponentChildren } from "preact";
import { ThemeControl } from "../components/theme.tsx";
import type { Connection } from "./live.ts";
import { useSessionEnd } from "./requests.ts";
import { href } from "./router.ts";

/** Places of the navigation. */
const PLACES = [
  { id: "runs", label: "Runs" },
  { id: "jobs", label: "Jobs" },
  { id: "models", label: "Models" },
  { id: "playground", label: "Playground" },
  { id: "keys", label: "Keys" },
] as const;

/** Whether the dashboard has a place of this name. */
export function isPlace(name: string): boolean {
  return PLACES.some(({ id }) => id === name);
}

/** Text of each state of the event stream. */
const CONNECTIONS: Readonly<Record<Connection, string>> = { connecting: "Connecting", live: "Live", lost: "Reconnecting" };

/** Properties of {@link Shell}. */
interface ShellProps {
  /** First part of the address, such as `runs`. */
  readonly place: string;
  readonly connection: Connection;
  /** Whether the service has sent data, which stays readable after the end of the session. */
  readonly hasData: boolean;
  readonly children: ComponentChildren;
}

/** Frame of every place of the dashboard: navigation, connection, theme. */
export function Shell({ place, connection, hasData, children }: ShellProps) {
  const hasEnded = useSessionEnd();
  return (
    <>
      <a class="skip" href="#main" onClick={skipToMain}>
        Skip to content
      </a>
      <header class="shell">
        <a class="brand" href={href(["runs"])}>
          <Mark />
          <span>Whetstone</span>
        </a>
        <nav aria-label="Dashboard">
          {PLACES.map(({ id, label }) => (
            <a key={id} href={href([id])} aria-current={id === place ? "page" : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <span class="connection" data-connection={connection} role="status">
          {CONNECTIONS[connection]}
        </span>
        <ThemeControl />
      </header>
      <main id="main" tabIndex={-1}>
        {hasEnded && !hasData && <h1>Login</h1>}
        {hasEnded && (
          <p class="problem" role="alert">
            {hasData ? "The session has ended." : "The dashboard needs a login."} Run <code>whetstone ui</code> for a new link.
          </p>
        )}
        {(hasData || !hasEnded) && children}
      </main>
    </>
  );
}

/** Moves the focus to the contents. The link alone would change the address, which names the place. */
function skipToMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** The mark of the project: a stone with a sharpened edge. */
function Mark() {
  return (
    <svg viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
      <path d="M2 13.5 13 3.2l5 2.6-9.2 11z" fill="currentColor" opacity="0.28" />
      <path d="M2 13.5 13 3.2" stroke="currentColor" stroke-width="2" stroke-linecap="round" fill="none" />
      <path d="m13 3.2 5 2.6-9.2 11L2 13.5" stroke="currentColor" stroke-width="1.3" stroke-linejoin="round" fill="none" />
    </svg>
  );
}

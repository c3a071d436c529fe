/** Page for addresses without a place. */
import { href } from "./router.ts";

/** Page for an address that the dashboard does not have. */
export function UnknownPage({ address }: { readonly address: string }) {
  return (
    <section aria-labelledby="unknown-title">
      <h1 id="unknown-title">Unknown address</h1>
      <p class="empty">
        The dashboard has no page at <code>{address}</code>. See the <a href={href(["runs"])}>runs</a>, <a href={href(["jobs"])}>jobs</a>,{" "}
        <a href={href(["models"])}>models</a>, the <a href={href(["playground"])}>playground</a> or the <a href={href(["keys"])}>keys</a>.
      </p>
    </section>
  );
}

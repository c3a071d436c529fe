/** The dialect of chat completions: its requests need no translation, and its answers and events are sent as the pipeline returns them. */
import type { BodyBuilder, Dialect } from "./dialect.ts";
import type { Opened, Translated } from "./translations.ts";

/** Dialect of chat completions. */
export const chatDialect: Dialect<Opened<Translated<"chat">>, "chat"> = {
  name: "chat",
  open({ calls }) {
    let body: unknown;
    const answer: BodyBuilder = {
      push({ json }) {
        body = json();
      },
      end: () => body,
    };
    return { calls, answer, shaper: "chunks" };
  },
};

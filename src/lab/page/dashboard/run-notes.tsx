/** Tags and note of a run, which users edit. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { NotesChange } from "../../../run/data.ts";
import type { RunSummary } from "../../dashboard/api.ts";
import { submitting } from "../components/controls.tsx";
import { send } from "./requests.ts";
import { Problem } from "./status.tsx";

/** Max characters of a tag, as in `routes.ts`. */
const MAX_TAG = 50;
/** Max characters of a note, as in `routes.ts`. */
const MAX_NOTE = 10_000;

/** Tags and note of a run, which can be edited. */
export function RunNotes({ run: { id, note, tags } }: { readonly run: RunSummary }) {
  /** Text of the field for a new tag. */
  const [tag, setTag] = useState("");
  /** Note as edited; null while it is only shown. */
  const [draft, setDraft] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  // The button that opened the editor is gone, and the focus with it.
  useEffect(() => field.current?.focus(), [draft === null]);
  /** Sends a change. Returns whether the service accepted it. */
  const save = async (change: NotesChange) => {
    const init = { method: "PATCH", headers: { "content-type": "application/json" }, body: JSON.stringify(change) };
    try {
      await send(`/ui/api/runs/${encodeURIComponent(id)}/notes`, init);
      setError(null);
      return true;
    } catch (failure) {
      setError(failure as Error);
      return false;
    }
  };
  const addTag = async () => {
    const added = tag.trim();
    if (added !== "" && (await save({ tags: [...tags, added] }))) setTag("");
  };
  const saveNote = async () => {
    if (await save({ note: draft ?? "" })) setDraft(null);
  };
  return (
    <div class="notes">
      <form class="tags" aria-label="Tags" onSubmit={submitting(() => void addTag())}>
        {tags.map((existingTag) => (
          <span key={existingTag} class="chip">
            {existingTag}
            <button
              type="button"
              aria-label={`Remove the tag ${existingTag}`}
              onClick={() => void save({ tags: tags.filter((other) => other !== existingTag) })}
            >
              ×
            </button>
          </span>
        ))}
        <input
          type="text"
          aria-label="Add a tag"
          placeholder="Add a tag"
          maxLength={MAX_TAG}
          value={tag}
          onInput={({ currentTarget }) => setTag(currentTarget.value)}
        />
        {draft === null && note === "" && (
          <button type="button" class="button" onClick={() => setDraft("")}>
            Add a note
          </button>
        )}
      </form>
      {draft === null && note !== "" && (
        <p class="note-text">
          <span>{note}</span>{" "}
          <button type="button" class="button" onClick={() => setDraft(note)}>
            Edit note
          </button>
        </p>
      )}
      {draft !== null && (
        <form class="note-edit" aria-label="Note" onSubmit={submitting(() => void saveNote())}>
          <textarea
            aria-label="Note"
            rows={3}
            maxLength={MAX_NOTE}
            value={draft}
            ref={field}
            onInput={({ currentTarget }) => setDraft(currentTarget.value)}
          />
          <span class="controls">
            <button type="submit" class="button primary">
              Save note
            </button>
            <button type="button" class="button" onClick={() => setDraft(null)}>
              Discard
            </button>
          </span>
        </form>
      )}
      {error && <Problem error={error} />}
    </div>
  );
}

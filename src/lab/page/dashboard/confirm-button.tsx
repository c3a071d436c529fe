/** Buttons that ask for a second press. */
import { useState } from "preact/hooks";

/** Properties of {@link ConfirmButton}. */
interface ConfirmButtonProps {
  /** Name of the action, such as "Cancel". */
  readonly label: string;
  /** Label of the second press, such as "Cancel job?". */
  readonly question: string;
  /** Name of the object, for screen readers. */
  readonly object: string;
  readonly onConfirm: () => void;
}

/** Button of an action that cannot be undone: a second press confirms the first one. */
export function ConfirmButton({ label, question, object, onConfirm }: ConfirmButtonProps) {
  const [isConfirming, setConfirming] = useState(false);
  if (!isConfirming) {
    return (
      <button type="button" class="button" aria-label={`${label} ${object}`} onClick={() => setConfirming(true)}>
        {label}
      </button>
    );
  }
  return (
    <button
      type="button"
      class="button danger"
      aria-label={`${question} ${object}`}
      ref={(element) => element?.focus()}
      onBlur={() => setConfirming(false)}
      onKeyDown={({ key }) => key === "Escape" && setConfirming(false)}
      onClick={onConfirm}
    >
      {question}
    </button>
  );
}

/** Controls and small layouts that report and dashboard share. */
import type { ComponentChildren } from "preact";

/** Table of names and values. */
export function Pairs({ rows }: { readonly rows: readonly (readonly [name: string, value: ComponentChildren])[] }) {
  return (
    <table class="pairs">
      <tbody>
        {rows.map(([name, value]) => (
          <tr key={name}>
            <th scope="row">{breakable(name)}</th>
            <td>{value}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Allows line breaks in a name between its parts. */
export function breakable(name: string) {
  return name.split(/(?<=[/_.:])/).map((part) => [part, <wbr />]);
}

/** An option of {@link Segmented} or {@link Select}. */
export interface ChoiceOption {
  readonly value: string;
  readonly label: string;
  readonly disabled?: boolean;
  readonly title?: string | undefined;
}

/** Properties of {@link Segmented}. */
interface SegmentedProps<Each> {
  readonly legend: string;
  readonly options: readonly Each[];
  /** Name of the radio buttons, unique on the page. */
  readonly name: string;
  readonly value: string;
  readonly onChange: (chosen: Each) => void;
}

/** Group of radio buttons that looks like one control. */
export function Segmented<Each extends ChoiceOption>({ legend, options, name, value, onChange }: SegmentedProps<Each>) {
  return (
    <fieldset class="segmented">
      <legend>{legend}</legend>
      {options.map((option) => (
        <label key={option.value} title={option.title}>
          <input
            type="radio"
            name={name}
            value={option.value}
            checked={option.value === value}
            disabled={option.disabled}
            onChange={() => onChange(option)}
          />
          <span>{option.label}</span>
        </label>
      ))}
    </fieldset>
  );
}

/** Properties of {@link Select}. */
interface SelectProps {
  /** Name for screen readers, unless an element around it names it. */
  readonly label?: string;
  readonly options: readonly ChoiceOption[];
  readonly value: string;
  readonly onChange: (value: string) => void;
}

/** Select element. */
export function Select({ label, options, value, onChange }: SelectProps) {
  return (
    <select aria-label={label} value={value} onChange={({ currentTarget }) => onChange(currentTarget.value)}>
      {options.map((option) => (
        <option key={option.value} value={option.value} disabled={option.disabled}>
          {option.label}
        </option>
      ))}
    </select>
  );
}

/** Properties of {@link Pager}. */
interface PagerProps {
  /** Name for screen readers. */
  readonly label: string;
  /** Texts of the buttons. */
  readonly earlier: string;
  readonly later: string;
  /** Items of the whole list. */
  readonly total: number;
  /** Index of the first item of the page. */
  readonly offset: number;
  /** Max items of a page. */
  readonly size: number;
  readonly onChange: (offset: number) => void;
}

/** Buttons of the earlier and the later page of a list; nothing for a list of one page. */
export function Pager({ label, earlier, later, total, offset, size, onChange }: PagerProps) {
  if (total <= size) return null;
  const button = (text: string, target: number) => (
    <button type="button" class="button" disabled={target < 0 || target >= total} onClick={() => onChange(target)}>
      {text}
    </button>
  );
  return (
    <nav class="pager" aria-label={label}>
      {button(earlier, offset - size)}
      {button(later, offset + size)}
    </nav>
  );
}

/** Returns a listener of a form that runs a function instead of sending the form. */
export function submitting(run: () => void): (event: Event) => void {
  return (event) => {
    event.preventDefault();
    run();
  };
}

/** Region that scrolls in both directions and can be reached by keyboard. */
export function Scroll({ label, children }: { readonly label: string; readonly children: ComponentChildren }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      {children}
    </div>
  );
}

/** Bar from the left for a value from 0 to 1. */
export function ShareBar({ share }: { readonly share: number }) {
  return <span class="bar-reward" style={{ "--share": share }} />;
}

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

/** An option of {@link Segmented}. */
export interface SegmentedOption {
  readonly value: string;
  readonly label: string;
  readonly disabled?: boolean;
  readonly title?: string | undefined;
}

/** Group of radio buttons that looks like one control. */
export function Segmented<Each extends SegmentedOption>({
  legend,
  options,
  name,
  value,
  onChange,
}: {
  readonly legend: string;
  readonly options: readonly Each[];
  readonly name: string;
  readonly value: string;
  readonly onChange: (chosen: Each) => void;
}) {
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

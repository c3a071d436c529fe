/** Value that is provided once, after its users were created. */
export interface Late<T> {
  /** Resolves when the value is provided. */
  readonly value: Promise<T>;
  /** Provides the value. Further calls have no effect. */
  readonly provide: (value: T) => void;
}

/** Creates a value to be provided later. */
export function late<T>(): Late<T> {
  let provide: (value: T) => void = () => undefined;
  const value = new Promise<T>((resolve) => {
    provide = resolve;
  });
  return { value, provide };
}

/** Errors of the template engine. `chat-template.ts` converts them to the errors of this package. */

/** Failure that Python's Jinja raises too: a type error, an undefined value, `raise_exception`. */
export class TemplateFailure extends Error {
  override readonly name = "TemplateFailure";
}

/** Construct that Python's Jinja supports and this engine does not. The message names it. */
export class TemplateUnsupported extends Error {
  override readonly name = "TemplateUnsupported";
}

/** Rendering that exceeds its limit of steps, text length or depth. */
export class TemplateLimitReached extends Error {
  override readonly name = "TemplateLimitReached";
}

/** Source text that is not a template. */
export class TemplateSyntaxFailure extends Error {
  override readonly name = "TemplateSyntaxFailure";

  /**
   * @param message - Problem, without the place.
   * @param line - Line of the source, from 1.
   */
  constructor(message: string, line: number) {
    super(`line ${line}: ${message}`);
  }
}

/** Raises the failure that Python calls `TypeError`. */
export function typeError(message: string): never {
  throw new TemplateFailure(`TypeError: ${message}`);
}

/** Raises the failure that Python calls `ValueError`. */
export function valueError(message: string): never {
  throw new TemplateFailure(`ValueError: ${message}`);
}

/** Raises the error of a construct that this engine does not support. */
export function unsupported(construct: string): never {
  throw new TemplateUnsupported(`${construct} is not supported in chat templates`);
}

/** Attributes, items and methods of values, in the order in which Python's sandboxed Jinja looks for them. */

import { TemplateFailure, typeError, unsupported, valueError } from "./errors.ts";
import type { Meter } from "./meter.ts";
import { elementAt, equals, itemsOf, toList } from "./operators.ts";
import { Loop } from "./loop.ts";
import { type Builtin, builtin, callBuiltin } from "./signature.ts";
import { callStringMethod, isStringMethod } from "./string-methods.ts";
import {
  Callable,
  Dict,
  DictView,
  Float,
  Group,
  integerArgument,
  isInt,
  type Keywords,
  Markup,
  Namespace,
  orElse,
  Range,
  Tuple,
  typeName,
  Undefined,
  type TemplateValue,
} from "./values.ts";

const DICT_METHODS: Readonly<Record<string, Builtin<Dict>>> = {
  copy: builtin("", (meter, self) => copyDict(meter, self)),
  get: builtin("key, default=, /", (_, self, [key, otherwise]) => orElse(self.get(key as TemplateValue), orElse(otherwise, null))),
  items: builtin("", (meter, self) => view(meter, "items", self)),
  keys: builtin("", (meter, self) => view(meter, "keys", self)),
  values: builtin("", (meter, self) => view(meter, "values", self)),
};
/** Methods that change a `dict`; the sandbox of chat templates forbids them. */
const DICT_MUTATORS: ReadonlySet<string> = new Set(["clear", "pop", "popitem", "setdefault", "update"]);

const SEQUENCE_METHODS: Readonly<Record<string, Builtin<Tuple | readonly TemplateValue[]>>> = {
  count: builtin("value, /", (meter, self, [value]) => {
    const items = itemsOf(meter, self);
    meter.charge(items.length);
    return items.filter((item) => equals(meter, item, value as TemplateValue)).length;
  }),
  index: builtin("value, start=, stop=, /", (meter, self, [value, start, stop]) => {
    const items = itemsOf(meter, self);
    meter.charge(items.length);
    const boundOf = (given: TemplateValue | undefined, otherwise: number): number => {
      const at = given === undefined ? otherwise : integerArgument(given, "index");
      return at < 0 ? Math.max(0, at + items.length) : at;
    };
    const end = Math.min(items.length, boundOf(stop, items.length));
    for (let at = boundOf(start, 0); at < end; at++) if (equals(meter, items[at] as TemplateValue, value as TemplateValue)) return at;
    return valueError("the value is not in the sequence");
  }),
};
/** Methods that change a `list`; the sandbox of chat templates forbids them. */
const LIST_MUTATORS: ReadonlySet<string> = new Set(["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"]);

/** Attributes of Python types that this engine does not support, by type. */
const UNSUPPORTED_ATTRIBUTES: Readonly<Record<string, ReadonlySet<string>>> = {
  dict: new Set(["fromkeys"]),
  TemplateDict: new Set(["fromkeys"]),
  int: numberAttributes("bit_length", "bit_count", "to_bytes", "from_bytes", "as_integer_ratio", "numerator", "denominator"),
  bool: numberAttributes("bit_length", "bit_count", "to_bytes", "from_bytes", "as_integer_ratio", "numerator", "denominator"),
  float: numberAttributes("as_integer_ratio", "fromhex", "hex", "is_integer"),
  generator: new Set(["close", "send", "throw", "gi_running", "gi_suspended"]),
  dict_keys: new Set(["isdisjoint", "mapping"]),
  dict_values: new Set(["mapping"]),
  dict_items: new Set(["isdisjoint", "mapping"]),
  range: new Set(["count", "index"]),
};

/** Returns the attributes that all Python numbers have, and further ones. */
function numberAttributes(...names: readonly string[]): ReadonlySet<string> {
  return new Set(["real", "imag", "conjugate", ...names]);
}

/** Returns the result of `dict.keys()`, `values()` or `items()`. */
function view(meter: Meter, kind: "keys" | "values" | "items", dict: Dict): DictView {
  meter.charge(dict.size);
  return new DictView(kind, dict);
}

/** Returns the result of `dict.copy()`. */
function copyDict(meter: Meter, dict: Dict): Dict {
  const copy = new Dict();
  for (const [key, value] of dict.entries()) {
    meter.charge(1);
    copy.set(key, value);
  }
  return copy;
}

/** Returns an attribute of the Python type itself: a method or a property. Undefined if the type has none of this name. */
function typeAttribute(meter: Meter, value: TemplateValue, name: string): TemplateValue | undefined {
  if (value instanceof Namespace) return value.attributes.get(name);
  if (value instanceof Loop) return value.attribute(meter, name);
  if (value instanceof Undefined) return undefined;
  if (value instanceof Callable && value.attributes.has(name)) return value.attributes.get(name);
  if (value instanceof Markup) return isStringMethod(name) ? unsupported(`\`.${name}\` of text marked by the filter \`safe\``) : undefined;
  if (value instanceof Group && (name === "grouper" || name === "list")) return value.items[name === "grouper" ? 0 : 1];
  if (value instanceof Range && (name === "start" || name === "stop" || name === "step")) return value[name];
  if (hasMethod(value, name))
    return new Callable((callMeter, args, keywords) => callMethod(callMeter, value, name, args, keywords), "builtin_function_or_method");
  if ((value instanceof Dict && DICT_MUTATORS.has(name)) || (Array.isArray(value) && LIST_MUTATORS.has(name))) {
    return new Undefined(`access to attribute '${name}' of '${typeName(value)}' object is unsafe.`);
  }
  if (UNSUPPORTED_ATTRIBUTES[typeName(value)]?.has(name) === true) return unsupported(`the attribute \`${typeName(value)}.${name}\``);
  return undefined;
}

/** Whether this engine has a method of a value. */
function hasMethod(value: TemplateValue, name: string): boolean {
  if (typeof value === "string") return isStringMethod(name);
  if (value instanceof Dict) return Object.hasOwn(DICT_METHODS, name);
  if (Array.isArray(value)) return Object.hasOwn(SEQUENCE_METHODS, name) || name === "copy";
  return value instanceof Tuple && Object.hasOwn(SEQUENCE_METHODS, name);
}

/** Returns the undefined value of a missing attribute or item. */
function missing(value: TemplateValue, key: TemplateValue): Undefined {
  if (typeof key === "string") return new Undefined(`'${describeValue(value)}' has no attribute '${key}'`);
  const element = isInt(key) ? String(key) : `of type ${typeName(key)}`;
  return new Undefined(`${describeValue(value)} has no element ${element}`);
}

/** Returns a value's name in messages of Python's Jinja. */
function describeValue(value: TemplateValue): string {
  return value === null ? "None" : `${typeName(value)} object`;
}

/** Returns `value.name`: an attribute of the type, else the item of that key. */
export function getAttribute(meter: Meter, value: TemplateValue, name: string): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  if (value instanceof Dict) {
    // Nearly every attribute that templates read is a key, so a name that does not belong to `dict` is looked up at once.
    if (!Object.hasOwn(DICT_METHODS, name) && !DICT_MUTATORS.has(name) && name !== "fromkeys") {
      const found = value.get(name);
      return found === undefined ? missing(value, name) : found;
    }
  }
  const attribute = typeAttribute(meter, value, name);
  return attribute === undefined ? missing(value, name) : attribute;
}

/** Returns `value[key]`: the item, else the attribute of that name. */
export function getItem(meter: Meter, value: TemplateValue, key: TemplateValue): TemplateValue {
  if (value instanceof Undefined) return value.fail();
  if (value instanceof Dict) {
    const found = isHashable(key) ? value.get(key) : undefined;
    if (found !== undefined) return found;
  } else if (typeof key === "boolean" || isInt(key)) {
    const found = elementAt(meter, value, integerArgument(key, "index"));
    if (found !== undefined) return found;
  }
  const attribute = typeof key === "string" ? typeAttribute(meter, value, key) : undefined;
  return attribute === undefined ? missing(value, key) : attribute;
}

/** Whether a value can be a key in this engine: null, a boolean, number or string. */
function isHashable(key: TemplateValue): boolean {
  return key === null || typeof key !== "object" || key instanceof Float;
}

/** Calls `value.name(...)`, without creating a value for the method where possible. */
export function callMethod(
  meter: Meter,
  value: TemplateValue,
  name: string,
  args: readonly TemplateValue[],
  keywords: Keywords,
): TemplateValue {
  if (typeof value === "string" && isStringMethod(name)) return callStringMethod(meter, value, name, args, keywords);
  meter.charge(1);
  if (value instanceof Dict && Object.hasOwn(DICT_METHODS, name)) {
    return callBuiltin(meter, name, DICT_METHODS[name] as Builtin<Dict>, value, args, keywords);
  }
  if (Array.isArray(value) && name === "copy") return toList(meter, value as readonly TemplateValue[]);
  if ((Array.isArray(value) || value instanceof Tuple) && Object.hasOwn(SEQUENCE_METHODS, name)) {
    const self = value as Tuple | readonly TemplateValue[];
    return callBuiltin(meter, name, SEQUENCE_METHODS[name] as Builtin<Tuple | readonly TemplateValue[]>, self, args, keywords);
  }
  return callValue(meter, getAttribute(meter, value, name), args, keywords);
}

/** Calls `called(...)`. */
export function callValue(meter: Meter, called: TemplateValue, args: readonly TemplateValue[], keywords: Keywords): TemplateValue {
  meter.charge(1);
  if (called instanceof Callable) return called.call(meter, args, keywords);
  if (called instanceof Undefined) return called.fail();
  if (called instanceof Loop) return called.recurse(meter, args);
  return typeError(`'${typeName(called)}' object is not callable`);
}

/**
 * Returns a function that looks up the argument `attribute` of filters in a value.
 *
 * @param path - Dotted path, in which numbers are indices (`messages.0.role`); undefined or null = the value itself.
 * @param otherwise - Value in place of an undefined one on the path; undefined or null = none.
 */
export function pathGetter(
  meter: Meter,
  path: TemplateValue | undefined,
  otherwise?: TemplateValue,
): (value: TemplateValue) => TemplateValue {
  if (path === undefined || path === null) return (value) => value;
  if (typeof path !== "string" && !isInt(path))
    throw new TemplateFailure(`Expected a text or an integer as \`attribute\`, got ${typeName(path)}.`);
  const keys = typeof path === "string" ? path.split(".").map((part) => (/^\d+$/.test(part) ? Number(part) : part)) : [path];
  return (value) => {
    let found = value;
    for (const key of keys) {
      found = getItem(meter, found, key);
      if (otherwise !== undefined && otherwise !== null && found instanceof Undefined) found = otherwise;
    }
    return found;
  };
}

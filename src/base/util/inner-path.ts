/** Whether a name is a single component of a path: neither empty nor `.` nor `..`, and without separators and NUL. */
function isComponent(name: string): boolean {
  // A colon starts a drive or a stream on Windows.
  const reserved = process.platform === "win32" ? /[\\\0:]/u : /[\\\0]/u;
  return name !== "" && name !== "." && name !== ".." && !reserved.test(name);
}

/** Whether a relative path, with `/` as the separator, stays below the directory that it is relative to. Links are not considered. */
export function isInnerPath(path: string): boolean {
  return path.split("/").every(isComponent);
}

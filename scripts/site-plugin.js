/**
 * TypeDoc plugin that makes the documents of `docs/` the guides of the site: each is named by its heading and sorted into the group of its
 * directory. `typedoc.json` loads it and orders the groups.
 */
import { relative, resolve, sep } from "node:path";
import { Application, Converter, PageEvent, ReflectionKind } from "typedoc";

const ROOT = resolve(import.meta.dirname, "..");

/** Directory of a document → group in the navigation; the first that matches counts. */
const GROUPS = [
  ["docs/tutorials/", "Tutorials"],
  ["docs/how-to/", "How-to guides"],
  ["docs/reference/", "Reference"],
  ["docs/explanation/", "Explanation"],
  ["docs/notebook/", "Notebook"],
  ["docs/", "Reference"],
  ["recipes/", "Recipes"],
  ["", "Project"],
];

export function load(app) {
  app.on(Application.EVENT_BOOTSTRAP_END, () => {
    app.options.setValue("markdownItLoader", (markdown) => markdown.core.ruler.push("code-in-headings", codeInHeadings));
  });
  // A folder has no default page.
  app.renderer.on(PageEvent.END, (page) => {
    page.contents = page.contents?.replaceAll(/href="((?:\.\.?\/)+)"/gu, 'href="$1index.html"');
  });
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const document of project.getReflectionsByKind(ReflectionKind.Document)) {
      const path = relative(ROOT, project.files.getReflectionPath(document)).split(sep).join("/");
      const [first] = document.content;
      const heading = /^# (.*)\n+/u.exec(first?.text ?? "");
      if (heading === null) throw new Error(`Expected ${path} to begin with a heading of level 1`);
      document.name = heading[1];
      first.text = first.text.slice(heading[0].length);
      document.frontmatter.group = GROUPS.find(([directory]) => path.startsWith(directory))[1];
    }
  });
}

/** Makes code in a heading text between tags: TypeDoc makes a heading's anchor of its text only, code hosts also of its code. */
function codeInHeadings({ tokens, Token }) {
  const tag = (content) => Object.assign(new Token("html_inline", "", 0), { content });
  for (const [index, { type }] of tokens.entries()) {
    if (type !== "heading_open") continue;
    const inline = tokens[index + 1];
    inline.children = inline.children.flatMap((child) => {
      if (child.type !== "code_inline") return [child];
      return [tag("<code>"), Object.assign(new Token("text", "", 0), { content: child.content }), tag("</code>")];
    });
  }
}

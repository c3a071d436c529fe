/** Completion scripts, generated from the tree of commands. Completing starts no program. */

/** Command with the words that can follow it on a command line. */
export interface Completed {
  /** Names of the command and its parents, separated by spaces; "" for the program itself. */
  readonly path: string;
  readonly subcommands: readonly { readonly name: string; readonly description: string }[];
  readonly options: readonly {
    /** Short and long form. */
    readonly flags: readonly string[];
    readonly description: string;
    readonly takesValue: boolean;
    /** Possible values; empty for any value. */
    readonly choices: readonly string[];
  }[];
  /** Possible values of the command's arguments; empty for any value. */
  readonly choices: readonly string[];
}

/** Option of a command. */
type CompletedOption = Completed["options"][number];

/** Returns the quoted text that a script compares with the path of a command: each name after a space, "" for the program itself. */
function quotedPath(path: string): string {
  return quoted(path === "" ? "" : ` ${path}`);
}

/** Quotes a text as one word of a shell. A single quote in it would end the quotation and is escaped. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Returns the quoted paths of all commands but the program itself. */
function subcommandPaths(commands: readonly Completed[]): string[] {
  return commands.filter(({ path }) => path !== "").map(({ path }) => quotedPath(path));
}

/** Returns the branch of a `case` that extends `$at`, the path of the command so far, by the next word if that is a subcommand. */
function pathBranches(commands: readonly Completed[]): string {
  return `${subcommandPaths(commands).join("|")}) at="$at $word" ;;`;
}

/** Returns the branches of a `case` that complete the value of an option; `complete` returns the shell code for one option. */
function valueBranches(commands: readonly Completed[], complete: (option: CompletedOption) => string): string[] {
  return commands.flatMap(({ path, options }) =>
    options
      .filter(({ takesValue }) => takesValue)
      .map(
        (option) =>
          `    ${option.flags.map((flag) => quoted(`${path === "" ? "" : ` ${path}`} ${flag}`)).join("|")}) ${complete(option)} ;;`,
      ),
  );
}

/** Returns the completion script of bash. */
export function bashScript(commands: readonly Completed[]): string {
  const branches = commands.map(({ path, subcommands, options, choices }) => {
    const flags = options.flatMap((option) => option.flags).join(" ");
    const words = [...subcommands.map(({ name }) => name), ...choices].join(" ");
    return `    ${quotedPath(path)}) flags=${quoted(flags)} words=${quoted(words)} ;;`;
  });
  const values = valueBranches(commands, ({ choices }) => {
    const generator = choices.length > 0 ? `-W ${quoted(choices.join(" "))}` : "-f";
    return `COMPREPLY=($(compgen ${generator} -- "$current")); return`;
  });
  return `# bash completion of whetstone: source <(whetstone completion bash)
_whetstone() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" at="" word flags="" words=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
${sharedPart(commands, values, branches)}
  if [[ $current == -* ]]; then words="$flags"; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _whetstone whetstone
`;
}

/** Returns the part of a script that bash and zsh share: the path of the command in `at`, then the values of an option, then the words. */
function sharedPart(commands: readonly Completed[], values: readonly string[], branches: readonly string[]): string {
  return `    case "$at $word" in
    ${pathBranches(commands)}
    esac
  done
  case "$at $previous" in
${values.join("\n")}
  esac
  case "$at" in
${branches.join("\n")}
  esac`;
}

/** Returns the completion script of zsh. */
export function zshScript(commands: readonly Completed[]): string {
  // A colon separates a word from its description.
  const described = (word: string, description: string) => quoted(`${word.replaceAll(":", String.raw`\:`)}:${description}`);
  const branches = commands.map(({ path, subcommands, options, choices }) => {
    const flags = options.flatMap((option) => option.flags.map((flag) => described(flag, option.description))).join(" ");
    const words = [...subcommands.map(({ name, description }) => described(name, description)), ...choices.map(quoted)].join(" ");
    return `    ${quotedPath(path)}) flags=(${flags}) candidates=(${words}) ;;`;
  });
  const values = valueBranches(commands, ({ choices }) =>
    choices.length > 0 ? `compadd -- ${choices.map(quoted).join(" ")}; return` : "_files; return",
  );
  return `#compdef whetstone
# zsh completion of whetstone: source <(whetstone completion zsh), or a file _whetstone in a directory of $fpath
_whetstone() {
  local at="" word previous="\${words[CURRENT-1]}"
  local -a flags candidates
  for word in "\${words[@]:1:$((CURRENT - 2))}"; do
${sharedPart(commands, values, branches)}
  if [[ \${words[CURRENT]} == -* ]]; then _describe option flags
  elif (( \${#candidates} )); then _describe command candidates
  else _files
  fi
}
if [[ $funcstack[1] == _whetstone ]]; then _whetstone "$@"; else compdef _whetstone whetstone; fi
`;
}

/** Returns the completion script of fish. */
export function fishScript(commands: readonly Completed[]): string {
  const lines = commands.flatMap(({ path, subcommands, options, choices }) => {
    const rule = `complete -c whetstone -n ${quoted(`test (__whetstone_at) = ${quotedPath(path)}`)}`;
    const words = subcommands.map(({ name, description }) => `${rule} -f -a ${quoted(name)} -d ${quoted(description)}`);
    const values = choices.length > 0 ? [`${rule} -f -a ${quoted(choices.join(" "))}`] : [];
    const flags = options.map((option) => {
      const names = option.flags.map((flag) => (flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`)).join(" ");
      const choiceValues = option.choices.length > 0 ? ` -x -a ${quoted(option.choices.join(" "))}` : "";
      const anyValue = option.takesValue && option.choices.length === 0 ? " -r" : "";
      return `${rule} ${names}${choiceValues}${anyValue} -d ${quoted(option.description)}`;
    });
    return [...words, ...values, ...flags];
  });
  return `# fish completion of whetstone: whetstone completion fish | source
function __whetstone_at
    set -l at ""
    for word in (commandline -opc)[2..-1]
        if contains -- "$at $word" ${subcommandPaths(commands).join(" ")}
            set at "$at $word"
        end
    end
    echo "$at"
end
${lines.join("\n")}
`;
}

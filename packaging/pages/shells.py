"""Completion for bash, zsh and fish.

All three know commands, flags and the choices of values, and offer files where a path may
stand. Recipes' names are those beside the program that is completed.
"""


def _leaves(top):
    """Every command without actions."""
    for command in top.actions:
        yield from command.actions or [command]


def _groups(top):
    return [command for command in top.actions if command.actions]


def _key(command):
    return " ".join(command.words)


def _takes_recipes(command):
    return any(option.place.startswith("recipe") for option in command.places)


def _data_sets(top):
    """The rows of --data."""
    train = next(one for one in top.actions if one.words == ["train"])
    return next(one for one in train.flags if "--data" in one.names).choices


def _fetched(top):
    """The names that `tandem data fetch` takes; digits are drawn."""
    return " ".join(name for name, _ in _data_sets(top) if name != "digits")


def _names(option):
    return [name for name, _ in option.choices]


def _chosen(command, top):
    """The choices of a positional argument, "" if there are none."""
    if command.words == ["data", "fetch"]:
        return _fetched(top)
    return " ".join(name for option in command.places for name in _names(option))


# --- bash ---

_BASH = """\
# bash completion of tandem; made by packaging/pages.

# The words for the value of flag $2 of command $1; "-" where files may stand.
_tandem_values() {
  case "$1:$2" in
@VALUES@
  esac
}

# The flags of command $1.
_tandem_flags() {
  case "$1" in
@FLAGS@
  esac
}

# Files and folders, of which @() matches the last word; all without one.
_tandem_files() {
  compopt -o filenames 2>/dev/null
  local file
  while IFS= read -r file; do
    [[ -n "$1" && ! -d "$file" && "$file" != $1 ]] || COMPREPLY+=("$file")
  done < <(compgen -f -- "$cur")
}

_tandem_words() {
  COMPREPLY+=($(compgen -W "$1" -- "$cur"))
}

_tandem_recipes() {
  local program folder name
  program=$(type -P "$1") || program=$1
  folder=${program%/*}/../share/tandem/recipes
  for name in "$folder"/*.toml; do
    name=${name##*/}
    [[ "$name" != "*.toml" && "${name%.toml}" == "$cur"* ]] && COMPREPLY+=("${name%.toml}")
  done
  _tandem_files "*.toml"
}

# The value behind flag $2 of command $1. False where none is wanted.
_tandem_value() {
  local words head
  words=$(_tandem_values "$1" "$2")
  case "$words" in
    "") return 1 ;;
    number) return 0 ;;
    list:*)
      head=${cur%"${cur##*,}"}
      cur=${cur##*,}
      _tandem_words "${words#list:}"
      COMPREPLY=("${COMPREPLY[@]/#/$head}")
      return 0 ;;
    *-) _tandem_files ;;
  esac
  _tandem_words "${words%-}"
}

_tandem() {
  local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} key=${COMP_WORDS[1]}
  COMPREPLY=()
  # --flag=value is three words here.
  if [[ "$cur" == "=" ]]; then
    cur=""
  elif [[ "$flag" == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if ((COMP_CWORD == 1)); then
    _tandem_words "@COMMANDS@ --help --version"
    return
  fi
  case "$key" in
@ACTIONS@
  esac
  if [[ "$flag" == -* ]] && _tandem_value "$key" "$flag"; then
    return
  fi
  if [[ "$cur" == -* ]]; then
    _tandem_words "$(_tandem_flags "$key")"
    return
  fi
  case "$key" in
@PLACES@
  esac
}

complete -F _tandem tandem
"""


def _bash_values(command):
    for option in command.flags:
        if not option.value:
            continue
        words = " ".join(_names(option))
        if option.kind == "list":
            words = "list:" + words
        elif not words and option.kind == "number":
            words = "number"
        elif option.kind == "text" and (not words or "--data" in option.names):
            words += "-"
        pattern = "|".join(f'"{_key(command)}:{name}"' for name in option.names)
        yield f'    {pattern}) echo "{words}" ;;'


def _bash_place(command, top):
    if _takes_recipes(command):
        return '_tandem_recipes "${COMP_WORDS[0]}"'
    if any(option.place == "program" for option in command.places):
        return 'COMPREPLY=($(compgen -c -- "$cur")); _tandem_files'
    if _chosen(command, top):
        return f'_tandem_words "{_chosen(command, top)}"'
    return "_tandem_files" if command.places else ":"


def bash(top):
    def lines(rows):
        return "\n".join(rows)

    return (
        _BASH.replace(
            "@VALUES@",
            lines(row for command in _leaves(top) for row in _bash_values(command)),
        )
        .replace(
            "@FLAGS@",
            lines(
                f'    "{_key(command)}") echo "'
                + " ".join(name for one in command.flags for name in one.shown)
                + '" ;;'
                for command in _leaves(top)
            ),
        )
        .replace(
            "@ACTIONS@",
            lines(
                f"    {_key(group)})\n"
                "      if ((COMP_CWORD == 2)); then\n"
                f'        _tandem_words "'
                + " ".join(action.words[-1] for action in group.actions)
                + ' --help"\n        return\n      fi\n'
                '      key="$key ${COMP_WORDS[2]}" ;;'
                for group in _groups(top)
            ),
        )
        .replace(
            "@PLACES@",
            lines(
                f'    "{_key(command)}") {_bash_place(command, top)} ;;'
                for command in _leaves(top)
            ),
        )
        .replace("@COMMANDS@", " ".join(command.words[0] for command in top.actions))
    )


# --- zsh ---

_ZSH = """\
#compdef tandem
# zsh completion of tandem; made by packaging/pages.

_tandem_recipes() {
  local -a names
  names=(${commands[tandem]:h}/../share/tandem/recipes/*.toml(N:t:r))
  compadd -a names
  _files -g "*.toml"
}

_tandem_data() {
  _alternative "names:name:(@DATA@)" "folders:folder:_files -/"
}

_tandem_of() {
  case "$1" in
@LEAVES@
  esac
}

_tandem() {
  local key=$words[2]
  if ((CURRENT == 2)); then
    local -a all=(
@COMMANDS@
    )
    _describe command all
    return
  fi
  case "$key" in
@ACTIONS@
  esac
  # What follows sees the command as the first word.
  local -a parts=(${=key})
  shift $#parts words
  ((CURRENT -= $#parts))
  _tandem_of "$key"
}

_tandem "$@"
"""


def _zsh_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_escape(text):
    for character in "\\[]:":
        text = text.replace(character, "\\" + character)
    return text


def _zsh_pair(name, help):
    return _zsh_quote(name.replace(":", "\\:") + ":" + help.replace(":", "\\:"))


def _zsh_values(option):
    words = " ".join(_names(option))
    if option.kind == "list":
        return f":list:_sequence compadd - {words}" if words else ":list: "
    if option.kind == "number":
        return f":number:({words})" if words else ":number: "
    if "--data" in option.names:
        return ":data:_tandem_data"
    return f":name:({words})" if words else ":text:_files"


def _zsh_spec(option):
    help = "[" + _zsh_escape(option.help) + "]"
    # Each of its names excludes all.
    group = "(" + " ".join(option.names) + ")" if option.names[1:] else ""
    for name in option.shown:
        equals = "=" if option.value and name.startswith("--") else ""
        value = _zsh_values(option) if option.value else ""
        yield _zsh_quote(group + name + equals + help + value)


def _zsh_place(command, top):
    for option in command.places:
        many = "*" if option.many else ""
        action = "_files"
        if _takes_recipes(command):
            action = "_tandem_recipes"
        elif option.place == "program":
            many, action = "*:", "_normal"
        elif _chosen(command, top):
            action = f"({_chosen(command, top)})"
        yield _zsh_quote(f"{many}:{option.place}:{action}")


def zsh(top):
    def leaf(command):
        specs = [spec for one in command.flags for spec in _zsh_spec(one)]
        specs += _zsh_place(command, top)
        lines = " \\\n".join("        " + spec for spec in specs)
        return f'    "{_key(command)}")\n      _arguments -s \\\n{lines} ;;'

    def group(command):
        rows = "\n".join(
            "        " + _zsh_pair(action.words[-1], action.help)
            for action in command.actions
        )
        return (
            f"    {_key(command)})\n      if ((CURRENT == 3)); then\n"
            f"        local -a all=(\n{rows}\n        )\n"
            "        _describe action all\n        return\n      fi\n"
            '      key="$key $words[3]" ;;'
        )

    return (
        _ZSH.replace("@LEAVES@", "\n".join(leaf(one) for one in _leaves(top)))
        .replace("@ACTIONS@", "\n".join(group(one) for one in _groups(top)))
        .replace("@DATA@", " ".join(name for name, _ in _data_sets(top)))
        .replace(
            "@COMMANDS@",
            "\n".join(
                "      " + _zsh_pair(command.words[0], command.help)
                for command in top.actions
            ),
        )
    )


# --- fish ---

_FISH = """\
# fish completion of tandem; made by packaging/pages.

# Whether the words behind tandem begin with these.
function __tandem_is
    set -l words (commandline -opc)
    set -l last (math (count $argv) + 1)
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end

# Whether these are all words behind tandem.
function __tandem_at
    set -l words (commandline -opc)
    test (count $words) -eq (math (count $argv) + 1); and test "$words[2..]" = "$argv"
end

function __tandem_recipes
    set -l folder (dirname (command -s tandem))/../share/tandem/recipes
    for file in $folder/*.toml
        basename $file .toml
    end
end

"""


def _fish_quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_words(choices):
    """What fish takes apart into words with their help."""
    return _fish_quote(
        " ".join(f"{name}\\t{_fish_quote(help)}" for name, help in choices)
    )


def _fish_lines(command, top):
    here = f"complete -c tandem -n '__tandem_is {_key(command)}'"
    for option in command.flags:
        line = here
        for name in option.shown:
            kind = "l" if name.startswith("--") else "s" if len(name) == 2 else "o"
            line += f" -{kind} {name.lstrip('-')}"
        if option.value:
            files = option.kind == "text" and not option.choices
            line += " -r" if files or "--data" in option.names else " -x"
            line += f" -a {_fish_words(option.choices)}" if option.choices else ""
        yield f"{line} -d {_fish_quote(option.help)}"
    if _takes_recipes(command):
        yield f"{here} -k -a '(__tandem_recipes; __fish_complete_suffix .toml)'"
    elif _chosen(command, top):
        yield f"{here} -a {_fish_quote(_chosen(command, top))}"
    elif command.places:
        yield f"{here} -F"


def fish(top):
    lines = ["complete -c tandem -f"]
    for parent in [top, *_groups(top)]:
        at = " ".join(["__tandem_at", *parent.words])
        for command in parent.actions:
            lines.append(
                f"complete -c tandem -n '{at}' -a {command.words[-1]}"
                f" -d {_fish_quote(command.help)}"
            )
    for command in _leaves(top):
        lines += _fish_lines(command, top)
    return _FISH + "\n".join(lines) + "\n"

"""Completion for bash, zsh and fish.

All three complete commands, flags and the choices of values, and files if a path is allowed. The names of recipes are those installed with the program that is completed.
An option's kind (app/describe.h) decides what each offers.
"""


def _words(choices):
    return " ".join(row.name for row in choices)


def _fill(template, rows, top=None, between=" "):
    """@ROWS@ and @GROUPS@, the commands below which there are others."""
    groups = [command.key for command in top.actions if command.actions] if top else []
    template = template.replace("@ROWS@", "\n".join(rows))
    return template.replace("@GROUPS@", between.join(groups))


# --- bash ---

_BASH = """\
# bash completion of tandem; made by packaging/pages.

# The kind and the words of the value of flag $2 of command $1; if $2 is empty, of its
# argument; if it is -, its flags.
_tandem_takes() {
  case "$1:$2" in
@ROWS@
  esac
}

# Adds what compgen makes of these arguments.
_tandem_add() {
  mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen "$@" -- "$cur")
}

# Offers what a line of _tandem_takes names.
_tandem_offer() {
  local kind=${1%% *} words=${1#* } head= program
  [[ "$1" == *" "* ]] || words=
  case "$kind" in
    list) head=${cur%"${cur##*,}"} cur=${cur##*,} ;;
    recipe)
      program=$(type -P "${COMP_WORDS[0]}")
      words=$(cd "${program%/*}/../share/tandem/recipes" 2>/dev/null && ls)
      words=${words//.toml/} ;;
  esac
  _tandem_add -P "$head" -W "$words"
  case "$kind" in
    recipe) _tandem_add -f -X "!*.toml"; _tandem_add -d ;;
    program) _tandem_add -c; _tandem_add -f ;;
    data|file) _tandem_add -f ;;
    *) return ;;
  esac
  compopt -o filenames 2>/dev/null
}

_tandem() {
  local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} key= takes=
  COMPREPLY=()
  # --flag=value is three words here.
  if [[ "$cur" == "=" ]]; then
    cur=""
  elif [[ "$flag" == "=" ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  ((COMP_CWORD == 1)) || key=${COMP_WORDS[1]}
  if ((COMP_CWORD > 2)) && [[ " @GROUPS@ " == *" $key "* ]]; then
    key+=" ${COMP_WORDS[2]}"
  fi
  [[ "$flag" != -?* ]] || takes=$(_tandem_takes "$key" "${flag//_/-}")
  [[ -n "$takes" || "$cur" != -* ]] || takes=$(_tandem_takes "$key" -)
  _tandem_offer "${takes:-$(_tandem_takes "$key")}"
}

complete -F _tandem tandem
"""


def _bash_row(command, names, takes, words):
    pattern = "|".join(f'"{command.key}:{name}"' for name in names)
    return f'    {pattern}) echo "{f"{takes} {words}".strip()}" ;;'


def _bash_rows(command):
    if command.actions:
        words = " ".join(action.words[-1] for action in command.actions)
        words += " --help" if command.words else " --help --version"
        yield _bash_row(command, [""], "word", words)
        return
    for option in command.options:
        if option.kind:
            names = option.names or [""]
            yield _bash_row(command, names, option.kind, _words(option.choices))
    flags = " ".join(name for option in command.flags for name in option.names)
    yield _bash_row(command, ["-"], "word", flags)


def bash(top):
    rows = (row for command in top.walk() for row in _bash_rows(command))
    return _fill(_BASH, rows, top)


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
  _alternative "names:name:($*)" "folders:folder:_files -/"
}

_tandem_files() {
  _alternative "names:name:($*)" "files:file:_files"
}

_tandem() {
  local key=
  ((CURRENT == 2)) || key=$words[2]
  ((CURRENT == 3)) || [[ $key != (@GROUPS@) ]] || key+=" $words[3]"
  # _arguments sees the command as the first word.
  local -a all parts=(${=key})
  shift $#parts words
  ((CURRENT -= $#parts))
  case "$key" in
@ROWS@
  esac
}

_tandem "$@"
"""

_ZSH_KINDS = {
    "": "",
    "word": ":name:({})",
    "number": ":number:({})",
    "list": ":list:_sequence compadd - {}",
    "data": ":data: _tandem_data {}",
    "file": ":text:_files",
    "recipe": ":recipe:_tandem_recipes",
    "program": ":program:_normal",
}


def _zsh_quote(text):
    return "'" + text.replace("'", "'\\''") + "'"


def _zsh_escape(text, characters):
    for character in characters:
        text = text.replace(character, "\\" + character)
    return text


def _zsh_specs(option):
    value = _ZSH_KINDS[option.kind].format(_words(option.choices))
    if option.kind == "file" and option.choices:
        value = f":text: _tandem_files {_words(option.choices)}"
    if option.kind in ("number", "list") and not option.choices:
        value = f":{option.kind}: "
    if option.place:
        many = "*:" if option.kind == "program" else "*" if option.many else ""
        yield _zsh_quote(f"{many}:{option.place}:{value.split(':', 2)[2]}")
    help = "[" + _zsh_escape(option.help, "\\[]:") + "]"
    # Each of its names excludes all.
    group = "(" + " ".join(option.names) + ")" if option.names[1:] else ""
    for name in option.names:
        equals = "=" if option.kind and name.startswith("--") else ""
        yield _zsh_quote(group + name + equals + help + value)


def _zsh_command(command):
    if command.actions:
        rows = "\n".join(
            "        " + _zsh_quote(":".join(_zsh_escape(text, ":") for text in pair))
            for pair in ((action.words[-1], action.help) for action in command.actions)
        )
        what = "action" if command.words else "command"
        body = f"      all=(\n{rows}\n      )\n      _describe {what} all"
    else:
        specs = [spec for option in command.options for spec in _zsh_specs(option)]
        body = " \\\n        ".join(["      _arguments -s", *specs])
    return f'    "{command.key}")\n{body} ;;'


def zsh(top):
    return _fill(_ZSH, map(_zsh_command, top.walk()), top, "|")


# --- fish ---

_FISH = r"""# fish completion of tandem; made by packaging/pages.

# Whether the words after tandem match.
function __tandem_in
    string match -qr -- "^$argv\$" "$(string join -- ' ' (commandline -opc)[2..])"
end

function __tandem_recipes
    set -l folder (dirname (command -s tandem))/../share/tandem/recipes
    for file in $folder/*.toml
        basename $file .toml
    end
end

complete -c tandem -f
@ROWS@
"""

_FISH_KINDS = {
    "": "",
    "word": " -x",
    "number": " -x",
    "list": " -x",
    "data": " -r",
    "file": " -r",
    "recipe": " -k -a '(__tandem_recipes; __fish_complete_suffix .toml)'",
    "program": " -F",
}


def _fish_quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish_choices(option):
    """The words that fish offers, with their help."""
    rows = " ".join(f"{row.name}\\t{_fish_quote(row.help)}" for row in option.choices)
    return f" -a {_fish_quote(rows)}" if rows else ""


def _fish_option(option):
    if option.place:
        if option.kind == "file":
            return _fish_choices(option) + " -F"
        return _fish_choices(option) or _FISH_KINDS[option.kind]
    line = ""
    for name in option.names:
        kind = "l" if name.startswith("--") else "s" if len(name) == 2 else "o"
        line += f" -{kind} {name.lstrip('-')}"
    line += _FISH_KINDS[option.kind] + _fish_choices(option)
    return f"{line} -d {_fish_quote(option.help)}"


def _fish_rows(command):
    for action in command.actions:
        row = f"-a {action.words[-1]} -d {_fish_quote(action.help)}"
        yield f"complete -c tandem -n '__tandem_in \"{command.key}\"' {row}"
    for option in command.options:
        at = f"""'__tandem_in "{command.key}( .*)?"'"""
        yield f"complete -c tandem -n {at}{_fish_option(option)}"


def fish(top):
    return _fill(_FISH, (row for command in top.walk() for row in _fish_rows(command)))

"""Manual pages: tandem(1), and one of each command."""

import shlex
import textwrap
import tomllib

# A page's sections, behind those that are made of its flags.
SECTIONS = ("environment", "files", "exit status", "examples")


def read_notes(path, top):
    """notes.toml. Raises ValueError for an example with a flag that there is not."""
    notes = tomllib.loads(path.read_text())
    for name, rows in notes["examples"].items():
        for _, line in rows:
            _check_example(name, line, top)
    return notes


def _check_example(name, line, top):
    command = top
    for word in shlex.split(line)[1:]:
        below = [action for action in command.actions if action.words[-1] == word]
        if below:
            command = below[0]
        elif word == "--":
            return
        elif word.startswith("-"):
            known = [one for option in command.flags for one in option.names]
            if word not in known + ["--help"]:
                raise ValueError(f"notes.toml: {name}: {line}: there is no {word}")


def pages(top, notes, version):
    """File name without ending -> page."""
    made = {"tandem": _page(top, top, notes, version)}
    for command in top.actions:
        made[_name(command)] = _page(command, top, notes, version)
    return made


def _name(command):
    return "-".join(["tandem", *command.words[:1]])


def escape(text):
    """Text as roff takes it in the middle of a line."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti")


def _paragraph(text):
    """Lines of text; none of them begins with what roff takes for a request."""
    lines = textwrap.wrap(escape(text), 78, break_on_hyphens=False)
    return ["\\&" + line if line[0] in ".'" else line for line in lines]


def _item(head, text):
    return [".TP", head, *(_paragraph(text) or ["\\&"])]


def _bold(text):
    return "\\fB" + escape(text) + "\\fR"


def _metavar(option):
    if option.kind == "list":
        return "LIST"
    if option.kind == "number":
        return "N"
    return "NAME" if option.choices else "TEXT"


def _flag_item(option, with_data_sets):
    head = ", ".join(_bold(name) for name in option.shown)
    if option.value:
        head += f" \\fI{_metavar(option)}\\fR"
    text = option.help
    text += f". Default: {option.default}" if option.default not in ("", '""') else ""
    lines = _item(head, text)
    if option.listed or (with_data_sets and "--data" in option.names):
        lines.append(".RS")
        for name, help in option.choices:
            lines += _item(_bold(name), help)
        lines.append(".RE")
    return lines


def _synopsis(command):
    line = _bold(" ".join(["tandem", *command.words]))
    for option in command.places:
        name = f"\\fI{escape(option.place.upper())}\\fR"
        name += "..." if option.many else ""
        line += f" {name}" if option.required else f" [{name}]"
    required = [option for option in command.flags if option.required]
    for option in required:
        line += f" {_bold(option.names[0])} \\fI{_metavar(option)}\\fR"
    return line + " [\\fIOPTIONS\\fR]"


def _options(options, with_data_sets):
    lines = []
    for option in options:
        if option.names:
            lines += _flag_item(option, with_data_sets)
        else:
            lines += _item(f"\\fI{escape(option.place.upper())}\\fR", option.help)
    return lines


def _groups(command):
    """The options by group, each below its heading but for those of none."""
    lines = []
    for group in dict.fromkeys(option.group for option in command.options):
        if group != "Options":
            lines.append(f'.SS "{escape(group)}"')
        rows = [option for option in command.options if option.group == group]
        lines += _options(rows, with_data_sets=True)
    return lines


def _leaf(command):
    lines = [".SH SYNOPSIS", _synopsis(command)]
    lines += [".SH DESCRIPTION", *_paragraph(command.description)]
    if any("_" in name for option in command.flags for name in option.names):
        lines += [".PP", *_paragraph("Flags may have underscores for dashes.")]
    return lines + [".SH OPTIONS", *_groups(command)]


def _with_actions(command):
    lines = [".SH SYNOPSIS"]
    for action in command.actions:
        lines += [_synopsis(action), ".br"]
    lines.append(".SH DESCRIPTION")
    for action in command.actions:
        lines.append(f'.SS "tandem {escape(" ".join(action.words))}"')
        lines += _paragraph(action.description)
        lines += _options(action.options, with_data_sets=False)
    return lines


def _program(top, notes):
    lines = [".SH SYNOPSIS", "\\fBtandem\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]"]
    lines += [".SH DESCRIPTION"]
    for text in notes["description"]:
        lines += [*_paragraph(text), ".PP"]
    lines += [".SH COMMANDS"]
    for command in top.actions:
        lines += _item(f"\\fBtandem\\-{escape(command.words[0])}\\fR(1)", command.help)
    return lines


def _notes(command, notes):
    """The sections that notes.toml fills, with the rows that are about this command."""
    name = command.words[0] if command.words else "tandem"
    lines = []
    for section in SECTIONS:
        if section == "examples":
            rows = [(line, text) for text, line in notes["examples"].get(name, [])]
        else:
            rows = [
                (row["name"], row["text"])
                for row in notes[section.replace(" ", "_")]
                if name in row.get("of", [name]) or name == "tandem"
            ]
        if not rows:
            continue
        lines.append(f".SH {section.upper()}")
        for head, text in rows:
            lines += _item(_bold(head), text)
    return lines


def _see_also(command, top):
    others = [one for one in [top, *top.actions] if one is not command]
    return [".SH SEE ALSO", ",\n".join(
        f"\\fB{escape(_name(one))}\\fR(1)" for one in others)]


def _page(command, top, notes, version):
    name = _name(command)
    lines = [
        '.\\" Made by packaging/pages from what the program says of itself.',
        f'.TH "{escape(name.upper())}" 1 "" "tandem {version}" "User Commands"',
        ".SH NAME",
        f"{escape(name)} \\- {escape(command.help)}",
    ]
    if not command.words:
        lines += _program(top, notes)
    elif command.actions:
        lines += _with_actions(command)
    else:
        lines += _leaf(command)
    lines += _notes(command, notes) + _see_also(command, top)
    return "\n".join(lines) + "\n"

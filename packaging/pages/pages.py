"""Manual pages: tandem(1), and a page for each command.

A page is a list of elements, which roff() writes: (kind, text), with kind title, section,
subsection, synopsis or text; or ("item", head, text, rows below it).
"""

import shlex
import tomllib

# The sections that notes.toml fills, in their order.
NOTES = ("environment", "files", "exit status", "examples")
METAVARS = {"list": "LIST", "number": "N", "word": "NAME", "data": "NAME"}


# Marks in the text of an element.
def _bold(text):
    return f"\1{text}\2"


def _italic(text):
    return f"\3{text}\4"


def read_notes(path, top):
    """notes.toml. Raises ValueError for an example with an unknown flag."""
    notes = tomllib.loads(path.read_text())
    commands = {command.key: command for command in top.walk()}
    for name, rows in notes["examples"].items():
        for _, line in rows:
            words = shlex.split(line.split(" -- ")[0])[1:]
            command = commands.get(" ".join(words[:2])) or commands[words[0]]
            known = ["--help", *(name for one in command.flags for name in one.names)]
            for word in words:
                if word.startswith("-") and word not in known:
                    raise ValueError(f"notes.toml: {name}: {line}: there is no {word}")
    return notes


def _value(option):
    return _italic(METAVARS.get(option.kind, "TEXT"))


def _item(option, leaf):
    if option.place:
        return ("item", _italic(option.place.upper()), option.help, [])
    head = ", ".join(map(_bold, option.names))
    head += f" {_value(option)}" if option.kind else ""
    default = option.default not in ("", '""')
    text = option.help + (f". Default: {option.default}" if default else "")
    listed = not option.choices_in_help or (leaf and option.kind == "data")
    rows = [(row.name, row.help) for row in option.choices] if listed else []
    return ("item", head, text, rows)


def _synopsis(command):
    words = [_bold(f"tandem {command.key}")]
    for option in command.places:
        name = _italic(option.place.upper()) + ("..." if option.many else "")
        words.append(name if option.required else f"[{name}]")
    for option in command.flags:
        if option.required:
            words += [_bold(option.names[0]), _value(option)]
    return ("synopsis", " ".join([*words, f"[{_italic('OPTIONS')}]"]))


def _program(top, notes):
    words = _bold("tandem"), _italic("COMMAND"), f"[{_italic('ARGUMENTS')}]"
    yield ("section", "synopsis")
    yield ("synopsis", " ".join(words))
    yield ("section", "description")
    yield from (("text", text) for text in notes["description"])
    yield ("section", "commands")
    for command in top.actions:
        yield ("item", _bold(_name(command)) + "(1)", command.help, [])


def _command(command):
    """Of a command with its options, or with the actions that have them."""
    leaves = command.actions or [command]
    yield ("section", "synopsis")
    yield from map(_synopsis, leaves)
    yield ("section", "description")
    for leaf in leaves:
        if command.actions:
            yield ("subsection", f"tandem {leaf.key}")
        yield ("text", leaf.description)
        if not command.actions:
            yield ("section", "options")
        for group in dict.fromkeys(option.group for option in leaf.options):
            if group != "Options":
                yield ("subsection", group)
            rows = [option for option in leaf.options if option.group == group]
            yield from (_item(option, leaf is command) for option in rows)


def _notes(command, notes):
    """The rows of notes.toml for this command; those of all commands for tandem(1)."""
    name = command.key or "tandem"
    for section in NOTES:
        if section == "examples":
            rows = [(line, text) for text, line in notes["examples"].get(name, [])]
        else:
            rows = [
                (row["name"], row["text"])
                for row in notes[section.replace(" ", "_")]
                if name in row.get("of", [name]) or name == "tandem"
            ]
        if rows:
            yield ("section", section)
            yield from (("item", _bold(head), text, []) for head, text in rows)


def _name(command):
    return "-".join(["tandem", *command.words])


def read(top, notes):
    """Its name -> the elements of a page."""
    commands = [top, *top.actions]
    pages = {}
    for command in commands:
        body = _command(command) if command.words else _program(top, notes)
        others = [f"{_bold(_name(one))}(1)" for one in commands if one is not command]
        pages[_name(command)] = [
            ("title", f"{_name(command)} - {command.help}"),
            *body,
            *_notes(command, notes),
            ("section", "see also"),
            ("text", ", ".join(others)),
        ]
    return pages


def _roff_text(text):
    """Text as a line that is no request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti")
    text = "\\&" + text if text[:1] in ("", ".", "'") else text
    return text.translate({1: "\\fB", 2: "\\fR", 3: "\\fI", 4: "\\fR"})


def _roff_lines(kind, head, text="", rows=()):
    head = _roff_text(head)
    if kind == "item":
        yield from (".TP", head, _roff_text(text))
        for name, help in rows:
            yield from (".RS", *_roff_lines("item", _bold(name), help), ".RE")
    elif kind == "synopsis":
        yield from (head, ".br")
    elif kind == "section":
        yield f".SH {head.upper()}"
    else:
        yield {"title": ".SH NAME", "subsection": ".SS", "text": ".PP"}[kind]
        yield head


def roff(name, elements, version):
    """A page for man."""
    lines = [
        '.\\" Made by packaging/pages from the program\'s --describe.',
        f'.TH "{_roff_text(name.upper())}" 1 "" "tandem {version}" "User Commands"',
        *(line for element in elements for line in _roff_lines(*element)),
    ]
    return "\n".join(lines) + "\n"

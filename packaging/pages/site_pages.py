"""The reference pages of the site in MyST Markdown: commands and recipes."""

import re
import tomllib

from pages import METAVARS


def _sentence(text):
    return text if text.endswith((".", "?")) else text + "."


def _capitalized(text):
    """Text with a capital, unless it begins with a name such as key=value."""
    return text[0].upper() + text[1:] if re.match(r"[a-z]+[ ,:]", text) else text


def _text(text):
    """Text without accidental Markdown: * is literal, and so is anything like <this>."""
    return re.sub(r"([*_<\[\]])", r"\\\1", text)


def _value(option):
    return METAVARS.get(option.kind, "TEXT")


def _item(option, nested):
    """An entry of a definition list."""
    if option.place:
        head = f"*{option.place.upper()}*"
    else:
        head = ", ".join(f"`{name}`" for name in option.names if "_" not in name)
        head += f" *{_value(option)}*" if option.kind else ""
    yield head
    default = option.default not in ("", '""')
    more = f" Default: `{option.default}`." if default else ""
    yield ": " + _text(_sentence(_capitalized(option.help))) + more
    if not option.choices_in_help or (nested and option.kind == "data"):
        yield ""
        for row in option.choices:
            yield f"  * `{row.name}`: {_text(_sentence(row.help))}"
    yield ""


def _synopsis(command):
    words = [f"tandem {command.key}"]
    for option in command.places:
        name = option.place.upper() + ("..." if option.many else "")
        words.append(name if option.required else f"[{name}]")
    for option in command.flags:
        if option.required:
            words += [option.names[0], _value(option)]
    return "```text\n" + " ".join([*words, "[OPTIONS]"]) + "\n```\n"


def _command(command):
    yield f"## tandem {command.key}\n"
    for leaf in command.actions or [command]:
        if command.actions:
            yield f"### tandem {leaf.key}\n"
        if leaf.description:
            yield _text(leaf.description) + "\n"
        yield _synopsis(leaf)
        groups = dict.fromkeys(option.group for option in leaf.options)
        for group in groups:
            if group != "Options":
                title = group[:1].upper() + group[1:]
                yield f"### {title.rstrip(':')}\n"
            for option in leaf.options:
                if option.group == group and "--help" not in option.names:
                    yield from _item(option, leaf is command)


def _examples(command, notes):
    rows = notes["examples"].get(command.key, [])
    if rows:
        yield "### Examples\n" if not command.actions else ""
        for text, line in rows:
            yield f"{_text(text)}\n\n```sh\n{line}\n```\n"


def _notes(title, rows):
    yield f"## {title}\n"
    for row in rows:
        yield f"`{row['name']}`\n: {_text(row['text'])}\n"


def commands(top, notes):
    """All commands, then what holds for several of them."""
    lines = []
    for command in top.actions:
        lines += _command(command)
        lines += _examples(command, notes)
    lines += _notes("Exit codes", notes["exit_status"])
    lines += _notes("Environment variables", notes["environment"])
    lines += _notes("Files", notes["files"])
    return "\n".join(lines) + "\n"


def recipes(folder):
    """All recipes in a table, then each recipe as it is."""
    lines = ["| recipe | tutorial | summary |", "| --- | --- | --- |"]
    files = {path.stem: path.read_text() for path in sorted(folder.glob("*.toml"))}
    for name, text in files.items():
        recipe = tomllib.loads(text)
        number = recipe.get("tutorial", "")
        number = number if isinstance(number, str) else number["number"]
        tutorial = f"[{number}](../tutorials/{number}.md)" if number else ""
        lines.append(f"| [{name}](#{name}) | {tutorial} | {_text(recipe['description'])} |")
    for name, text in files.items():
        lines += ["", f"## {name}", "", "```toml", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"

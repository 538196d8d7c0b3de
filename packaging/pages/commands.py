"""What the program says of its commands."""

import dataclasses
import json
import subprocess

# How a flag's help says that its values are at the end of the text.
LISTED = "; see the end"


@dataclasses.dataclass
class Option:
    # Dashes first; empty for an argument that has a place instead.
    names: list
    # The place's name, such as "recipe", or "".
    place: str
    many: bool
    required: bool
    help: str
    group: str
    # Whether a value follows, and of which kind: number, text or list.
    value: bool
    kind: str
    default: str
    # (name, help) of each; `listed`: the help does not name them.
    choices: list
    listed: bool

    @property
    def shown(self):
        """Its names without those that have underscores for dashes."""
        return [
            name
            for name in self.names
            if "_" not in name or name.replace("_", "-") not in self.names
        ]


@dataclasses.dataclass
class Command:
    # Such as ["bench", "step"]; [] for the program itself.
    words: list
    # A few words, for lists of commands.
    help: str
    description: str
    options: list
    # Of a command that has any: commands of their own.
    actions: list

    @property
    def flags(self):
        return [option for option in self.options if option.names]

    @property
    def places(self):
        return [option for option in self.options if option.place]


def _run(program, words):
    return subprocess.run(
        [program, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _option(row):
    return Option(
        names=row["names"],
        place=row.get("place", ""),
        many=row.get("many", False),
        required=row["required"],
        help=row["help"].removesuffix(LISTED),
        group=row["group"],
        value=row["value"],
        kind=row.get("kind", ""),
        default=row.get("default", ""),
        choices=[(choice["name"], choice["help"]) for choice in row.get("choices", [])],
        listed=row["help"].endswith(LISTED),
    )


def read(program, words=(), help="distributed training for C++ on LibTorch"):
    """The program's command of these words, with all below it."""
    row = json.loads(_run(program, [*words, "--describe"]))
    return Command(
        words=list(words),
        help=help,
        description=row.get("description", ""),
        options=[_option(option) for option in row.get("options", [])],
        actions=[
            read(program, [*words, action["name"]], action["help"])
            for action in row.get("commands", [])
        ],
    )


def version(program):
    return _run(program, ["version"]).split()[1]

"""The commands of a built `tandem`, as each describes itself for --describe."""

import dataclasses
import json
import subprocess
import types


@dataclasses.dataclass
class Command:
    # Such as ["bench", "step"]; [] for the program itself.
    words: list
    # A few words, for lists of commands.
    help: str
    description: str
    # Each with the members of a row of --describe (app/describe.h).
    options: list
    # The commands below it, such as those of `bench`.
    actions: list

    @property
    def key(self):
        return " ".join(self.words)

    @property
    def flags(self):
        return [option for option in self.options if option.names]

    @property
    def places(self):
        return [option for option in self.options if option.place]

    def walk(self):
        """Itself and all commands below it."""
        yield self
        for action in self.actions:
            yield from action.walk()


def _run(program, words):
    return subprocess.run(
        [program, *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def _read(program, words, help):
    text = _run(program, [*words, "--describe"])
    row = json.loads(text, object_hook=lambda keys: types.SimpleNamespace(**keys))
    actions = [_read(program, [*words, one.name], one.help) for one in row.commands]
    return Command(words, help, row.description, row.options, actions)


def read(program):
    """The program as the command of no words, with all commands below it."""
    top = _read(program, [], "distributed training for C++ on LibTorch")
    commands = {command.key: command for command in top.walk()}
    # `data fetch` takes the names of --data, of which digits need no download.
    data = next(flag for flag in commands["train"].flags if flag.kind == "data")
    for place in commands["data fetch"].places:
        place.kind = "word"
        place.choices = [row for row in data.choices if row.name != "digits"]
    return top


def version(program):
    return _run(program, ["version"]).split()[1]

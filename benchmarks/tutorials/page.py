"""docs/tutorials/NAME.md from NAME.in.md: {{WORD ARGUMENTS}} in the template becomes
figures and lines of docs/tutorials/figures.json."""
import glob
import os
import re

import lines
from programs import (BY_KEY, EXAMPLES, MPIRUN, PAGES, PROGRAMS, figures_of_tutorial,
                      printed_by_tutorial, tutorial_table)
from svg import chart

TEMPLATES = sorted(glob.glob(os.path.join(PAGES, "*.in.md")))
SIDES = {"ours": "tandem", "peer": "PyTorch"}
# In the order of drawing: tandem's curve is in front.
CHARTED = ("tutorial", "PyTorch", "tandem")


def seconds_text(seconds):
    if seconds < 10:
        return f"{seconds:.2f}"
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"


def epoch_seconds(side):
    return side["train_seconds"] / side["epochs"]


def minutes_text(seconds):
    """As the shell's `time`."""
    return f"{int(seconds // 60)}m{seconds % 60:.3f}s"


def table(head, rows):
    rule = ["---" if i == 0 else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def code(text):
    return "```text\n" + text + "\n```"


class Page:
    def __init__(self, record):
        self.record = record
        self.charts = {}

    def side(self, key, name):
        return self.record["runs"].get(key, {}).get(name)

    # --- words of the template ---

    def command(self, key):
        """tandem's command, from the recipe: it needs no measurement."""
        program = BY_KEY[key]
        mpi = [*MPIRUN, str(program.ranks)] if program.mpi else []
        return "```sh\n" + " ".join([*mpi, "tandem", "train", program.recipe,
                                     "--data", "mnist", *program.flags]) + "\n```"

    def figures(self, *keys):
        rows = []
        for key in keys:
            printed = figures_of_tutorial(BY_KEY[key])
            if printed:
                rows.append(self.tutorial_row(key, printed))
            rows += [self.side_row(key, name) for name in SIDES]
        return table(["", "ranks", "epochs", "seconds",
                      "training seconds per epoch", "accuracy, %"], [row for row in rows if row])

    def tutorial_row(self, key, printed):
        program = BY_KEY[key]
        accuracy = f"{printed['accuracy']:g}" if "accuracy" in printed else ""
        if printed.get("where") == "train":
            accuracy += " (training)"
        seconds = seconds_text(printed["seconds"]) if "seconds" in printed else ""
        return [f"{key}, tutorial", str(program.ranks), str(program.epochs), seconds, "",
                accuracy]

    def side_row(self, key, name):
        if name == "peer" and not BY_KEY[key].peer:
            return None
        side = self.side(key, name)
        title = f"{key}, {SIDES[name]}"
        if not side:
            return [title, "not measured", "", "", "", ""]
        return [title, str(side["ranks"]), self.epochs_text(key, side),
                seconds_text(side["seconds"]), seconds_text(epoch_seconds(side)),
                f"{side['test_accuracy']:.2f}"]

    @staticmethod
    def epochs_text(key, side, unit=""):
        """Names what the run had less than the tutorial, unless ranks converged."""
        of = BY_KEY[key].epochs
        text = str(side["epochs"])
        if side["epochs"] < of and not lines.converged(side["tail"]):
            text += f" of {of}"
        return text + unit + (f", {side['limit']} samples" if side["limit"] else "")

    def lines(self, key):
        """First, tenth and last line of the tutorial, tandem and PyTorch."""
        program = BY_KEY[key]
        printed = printed_by_tutorial(key)
        parts = {"tutorial": lines.recorded(program, printed)} if printed else {}
        parts |= {SIDES[name]: self.side(key, name) for name in SIDES
                  if self.side(key, name)}
        told = []
        for name, side in parts.items():
            found = side.get("lines", [])
            if len(found) > 3:
                found = [found[i] for i in lines.shown(len(found))]
            told += [f"{name:<8}  {line}" for line in side["head"] + found + side["tail"]]
        return code("\n".join(told) or "not measured")

    def times(self, key):
        """real, user and sys."""
        rows = []
        for line in ("real", "user", "sys"):
            match = re.search(rf"^{line}\s+(\S+)", printed_by_tutorial(key), re.M)
            cells = [match[1] if match else ""]
            for name in SIDES:
                side = self.side(key, name)
                cells.append(minutes_text(side["seconds" if line == "real" else line])
                             if side else "not measured")
            rows.append([f"`{line}`", *cells])
        heads = [f"{SIDES[name]}, {self.epochs_text(key, self.side(key, name), ' epochs')}"
                 if self.side(key, name) else SIDES[name] for name in SIDES]
        return table(["", "tutorial, 14 epochs", *heads], rows)

    def value(self, key, name, field):
        side = self.side(key, name)
        if not side:
            return "(not measured)"
        if field == "test_accuracy":
            return f"{side[field]:.2f}"
        number = epoch_seconds(side) if field == "epoch_seconds" else side[field]
        return seconds_text(number) if isinstance(number, float) else str(number)

    def curve(self, name):
        """Loss and accuracy of each epoch on one rank: charts and a table."""
        key = name + "-1"
        parts = {"tutorial": lines.curve(printed_by_tutorial(key).splitlines())}
        parts |= {SIDES[side]: lines.curve((self.side(key, side) or {}).get("lines", []))
                  for side in SIDES}
        for column, title in ((1, "loss"), (2, "accuracy, %")):
            file = f"{name}-{title.split(',')[0]}.svg"
            self.charts[file] = chart(
                {who: [(row[0], row[column]) for row in parts[who]] for who in CHARTED},
                "epoch", title)
        by_epoch = {who: {row[0]: row for row in rows} for who, rows in parts.items()}
        rows = []
        for epoch in range(1, BY_KEY[key].epochs + 1):
            found = [by_epoch[who].get(epoch) for who in parts]
            rows.append([str(epoch), *(f"{row[1]:.6f}" if row else "" for row in found),
                         *(f"{row[2]:.1f}" if row else "" for row in found)])
        head = ["epoch", *(f"loss, {who}" for who in parts),
                *(f"accuracy in %, {who}" for who in parts)]
        figures = [f"![{title} of each epoch on one rank]({name}-{title.lower()}.svg)\n\n"
                   f"*{title} of each epoch on one rank. tandem's curve hides PyTorch's if they agree.*\n\n"
                   for title in ("Loss", "Accuracy")]
        return "".join(figures) + table(head, rows)

    def scaling(self, name):
        """1 to 5 processes: a chart of seconds per epoch, and a table."""
        series = {who: [] for who in CHARTED}
        rows = []
        for ranks in range(1, 6):
            key = f"{name}-{ranks}"
            seconds = figures_of_tutorial(BY_KEY[key]).get("seconds")
            if seconds:
                series["tutorial"].append((ranks, seconds / BY_KEY[key].epochs))
            cells = [str(ranks), seconds_text(seconds) if seconds else ""]
            for side_name, title in SIDES.items():
                side = self.side(key, side_name)
                if side:
                    series[title].append((ranks, epoch_seconds(side)))
                cells += self.scaling_cells(key, side, side_name == "ours")
            rows.append(cells)
        if any(series.values()):
            self.charts[name + "-scaling.svg"] = chart(
                series, "processes", "seconds per epoch", from_zero=True)
        return (f"![Seconds per epoch of 1 to 5 processes]({name}-scaling.svg)\n\n" + table(
            ["processes", "tutorial, seconds", "tandem, seconds", "tandem, seconds per epoch",
             "tandem, accuracy in %", "tandem, ranks that converged", "PyTorch, seconds",
             "PyTorch, epochs", "PyTorch, seconds per epoch"], rows))

    def scaling_cells(self, key, side, ours):
        if not side:
            return ["not measured", *[""] * (3 if ours else 2)]
        each = seconds_text(epoch_seconds(side))
        if not ours:
            return [seconds_text(side["seconds"]), self.epochs_text(key, side), each]
        told = lines.converged(side["tail"])
        ranks = ", ".join(f"{rank} ({epochs})" for rank, epochs in sorted(told.items()))
        return [seconds_text(side["seconds"]), each, f"{side['test_accuracy']:.2f}",
                ranks or "none"]

    def example(self, name, *wanted):
        """Lines of an example's outputs; `wanted`: their numbers from 0 (default: all)."""
        parts = []
        for side, title in SIDES.items():
            made = self.record["examples"].get(name, {}).get(side)
            if made:
                kept = [made["lines"][int(i)] for i in wanted if int(i) < len(made["lines"])]
                parts += [f"{title:<8}  {line}" for line in (kept or made["lines"])]
        return code("\n".join(parts) or "not measured")

    def overview(self, tutorial=""):
        """Results of all runs, or of those of one tutorial."""
        rows = []
        for program in programs_of(tutorial):
            printed = figures_of_tutorial(program)
            told = ", ".join(
                ([f"{seconds_text(printed['seconds'])} s"] if "seconds" in printed else []) +
                ([f"{printed['accuracy']:g} %"] if "accuracy" in printed else []))
            sides = [self.side(program.key, name) for name in SIDES]
            cells = [self.overview_cell(program.key, side) for side in sides]
            cells[1] = cells[1] if program.peer else ""
            # Ranks that have stopped leave their cores to the others.
            uneven = program.ranks > 1 and sides[0] and lines.converged(sides[0]["tail"])
            ratio = (f"{epoch_seconds(sides[1]) / epoch_seconds(sides[0]):.1f}x"
                     if all(sides) and not uneven else "")
            ranks = sides[0]["ranks"] if sides[0] else program.ranks
            rows.append([program.key, str(ranks), told, *cells, ratio])
        return table(["run", "ranks", "tutorial", "tandem", "PyTorch", "speed-up per epoch"],
                     rows)

    def overview_cell(self, key, side):
        if not side:
            return "not measured"
        text = f"{seconds_text(side['seconds'])} s, {side['test_accuracy']:.2f} %"
        epochs = self.epochs_text(key, side)
        return text + (f" ({epochs})" if " " in epochs else "")

    def costs(self, tutorial=""):
        """Traffic, waiting time and memory of tandem's runs, or of those of one tutorial."""
        rows = []
        for program in programs_of(tutorial):
            side = self.side(program.key, "ours")
            if side and "peak_memory_mib" in side:
                rows.append([program.key, str(side["ranks"]),
                             f"{side['samples_per_second']:.0f}",
                             f"{side['bytes_sent_per_rank'] / 1e6:.1f}",
                             f"{side['exposed_comm_ms_per_step']:.2f}",
                             f"{side['peak_memory_mib']:.0f}"])
        return table(["run", "ranks", "samples per second", "MB per rank",
                      "waiting per step, ms", "peak memory, MiB"], rows)

    def machine(self):
        """The machine, date and load of each group of runs."""
        found = {}
        sides = [(key, side) for part in ("runs", "examples")
                 for key, run in self.record[part].items() for side in run.values()]
        for key, side in sides:
            about = (f"{side['cpu']}, {side['cores']} cores, {side['instruction_sets']}",
                     side["date"])
            found.setdefault(about, []).append((key, side))
        if not found:
            return "Nothing is measured yet."
        most = max(found, key=lambda about: len(found[about]))
        rows = []
        for about, parts in found.items():
            keys = dict.fromkeys(f"`{key}`" for key, _ in parts)
            loads = [side["load"] for _, side in parts]
            rows.append([", ".join(keys) if about != most else "all other runs", about[0],
                         about[1], f"{min(loads):g} to {max(loads):g}"])
        rows.sort(key=lambda row: row[0].startswith("all"))
        versions = sorted({side["torch"] for _, side in sides if "torch" in side})
        return (table(["runs", "machine", "date", "load average before a run"],
                      rows) + f"\n\nThe version of PyTorch is {', '.join(versions)}.")


# The words of templates, and how many of their arguments are keys of runs (None: all);
# curve and scaling have a run for each number of ranks.
WORDS = {"command": 1, "figures": None, "lines": 1, "times": 1, "value": 1, "curve": 1,
         "scaling": 1, "example": 0, "overview": 0, "costs": 0, "machine": 0}


def programs_of(tutorial):
    return [program for program in PROGRAMS
            if tutorial in ("", tutorial_table(program)["number"])]


def check(word, arguments):
    if word not in WORDS:
        raise ValueError(f"a template has no word {word}; choose one of {', '.join(WORDS)}")
    last = "-1" if word in ("curve", "scaling") else ""
    keys = [key + last for key in arguments[:WORDS[word]]]
    examples = arguments[:1] if word == "example" else []
    unknown = [key for key in keys if key not in BY_KEY] + [
        name for name in examples if name not in EXAMPLES]
    if unknown:
        raise ValueError(f"{{{{{word} {' '.join(arguments)}}}}} names no run")


def render(record, template):
    """(the page, {name of a chart: SVG})."""
    page = Page(record)

    def fill(match):
        word, *arguments = match[1].split()
        check(word, arguments)
        return getattr(page, word)(*arguments)
    return re.sub(r"\{\{([^}]+)\}\}", fill, template), page.charts


def read_template(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return re.sub(r"\A<!--.*?-->\n+", "", text, flags=re.S)


def files(record):
    """{path: content} of all pages and charts."""
    made = {}
    for template in TEMPLATES:
        text, charts = render(record, read_template(template))
        made[template.replace(".in.md", ".md")] = text
        made.update({os.path.join(PAGES, name): svg for name, svg in charts.items()})
    return made

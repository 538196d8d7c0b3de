"""docs/documents.md: the template's prose, and in place of {{WORD ARGUMENTS}} what
docs/documents.json holds."""
import os
import re

import lines
from programs import (BY_KEY, EXAMPLES, MPIRUN, PAGE, PROGRAMS, ROOT, figures_of_document,
                      printed_by_document)
from svg import chart

TEMPLATE = os.path.join(ROOT, "docs", "documents.in.md")
SIDES = {"ours": "tandem", "peer": "PyTorch"}


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
    return "```\n" + text + "\n```"


class Page:
    def __init__(self, record):
        self.record = record
        self.charts = {}

    def side(self, key, name):
        return self.record["runs"].get(key, {}).get(name)

    # --- words of the template ---

    def command(self, key):
        """What ours is run with: of the recipe, not of the record, so that it is there
        before anything is measured."""
        program = BY_KEY[key]
        mpi = [*MPIRUN, str(program.ranks)] if program.mpi else []
        return "```sh\n" + " ".join([*mpi, "tandem", "train", f"recipes/{program.recipe}.toml",
                                     "--data", "mnist", *program.flags]) + "\n```"

    def figures(self, *keys):
        rows = []
        for key in keys:
            document = figures_of_document(BY_KEY[key])
            if document:
                rows.append(self.document_row(key, document))
            rows += [self.side_row(key, name) for name in SIDES]
        return table(["", "ranks", "epochs", "seconds", "training, s an epoch",
                      "accuracy, %"], [row for row in rows if row])

    def document_row(self, key, document):
        program = BY_KEY[key]
        accuracy = f"{document['accuracy']:g}" if "accuracy" in document else ""
        if document.get("where") == "train":
            accuracy += " (training)"
        seconds = seconds_text(document["seconds"]) if "seconds" in document else ""
        return [f"{key}, document", str(program.ranks), str(program.epochs), seconds, "",
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
        """Says what is less than the document's, but for ranks that have converged."""
        of = BY_KEY[key].epochs
        text = str(side["epochs"])
        if side["epochs"] < of and not lines.converged(side["tail"]):
            text += f" of {of}"
        return text + unit + (f", {side['limit']} samples" if side["limit"] else "")

    def lines(self, key):
        """First, tenth and last line, of the document too where it shows any."""
        program = BY_KEY[key]
        printed = printed_by_document(key)
        parts = {"document": lines.recorded(program, printed)} if printed else {}
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
            match = re.search(rf"^{line}\s+(\S+)", printed_by_document(key), re.M)
            cells = [match[1] if match else ""]
            for name in SIDES:
                side = self.side(key, name)
                cells.append(minutes_text(side["seconds" if line == "real" else line])
                             if side else "not measured")
            rows.append([f"`{line}`", *cells])
        heads = [f"{SIDES[name]}, {self.epochs_text(key, self.side(key, name), ' epochs')}"
                 if self.side(key, name) else SIDES[name] for name in SIDES]
        return table(["", "document, 14 epochs", *heads], rows)

    def value(self, key, name, field):
        side = self.side(key, name)
        if not side:
            return "(not measured)"
        number = epoch_seconds(side) if field == "epoch_seconds" else side[field]
        return seconds_text(number) if isinstance(number, float) else str(number)

    def curve(self, name):
        """Loss and accuracy of each epoch on one rank: charts and a table."""
        key = name + "-1"
        parts = {"document": lines.curve(printed_by_document(key).splitlines())}
        parts |= {SIDES[side]: lines.curve((self.side(key, side) or {}).get("lines", []))
                  for side in SIDES}
        for column, title in ((1, "loss"), (2, "accuracy, %")):
            file = f"{name}-{title.split(',')[0]}.svg"
            self.charts[file] = chart(
                {who: [(row[0], row[column]) for row in rows] for who, rows in parts.items()},
                "epoch", title)
        by_epoch = {who: {row[0]: row for row in rows} for who, rows in parts.items()}
        rows = []
        for epoch in range(1, BY_KEY[key].epochs + 1):
            found = [by_epoch[who].get(epoch) for who in parts]
            rows.append([str(epoch), *(f"{row[1]:.6f}" if row else "" for row in found),
                         *(f"{row[2]:.1f}" if row else "" for row in found)])
        head = ["epoch", *(f"loss, {who}" for who in parts), *(f"%, {who}" for who in parts)]
        return (f"![loss](documents/{name}-loss.svg)\n\n"
                f"![accuracy](documents/{name}-accuracy.svg)\n\n" + table(head, rows))

    def scaling(self, name):
        """1 to 5 processes: seconds an epoch as a chart, and what ranks did as a table."""
        series = {"document": [], "tandem": [], "PyTorch": []}
        rows = []
        for ranks in range(1, 6):
            key = f"{name}-{ranks}"
            seconds = figures_of_document(BY_KEY[key]).get("seconds")
            if seconds:
                series["document"].append((ranks, seconds / BY_KEY[key].epochs))
            cells = [str(ranks), seconds_text(seconds) if seconds else ""]
            for side_name, title in SIDES.items():
                side = self.side(key, side_name)
                if side:
                    series[title].append((ranks, epoch_seconds(side)))
                cells += self.scaling_cells(key, side, side_name == "ours")
            rows.append(cells)
        if any(series.values()):
            self.charts[name + "-scaling.svg"] = chart(
                series, "processes", "seconds an epoch", from_zero=True)
        return (f"![seconds an epoch](documents/{name}-scaling.svg)\n\n" + table(
            ["processes", "document: s", "tandem: s", "s an epoch", "accuracy, %",
             "ranks that converged", "PyTorch: s", "of epochs", "s an epoch"], rows))

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
        """Lines of an example's outputs: `wanted` are numbers from 0, all without."""
        parts = []
        for side, title in SIDES.items():
            made = self.record["examples"].get(name, {}).get(side)
            if made:
                kept = [made["lines"][int(i)] for i in wanted if int(i) < len(made["lines"])]
                parts += [f"{title:<8}  {line}" for line in (kept or made["lines"])]
        return code("\n".join(parts) or "not measured")

    def overview(self):
        rows = []
        for program in PROGRAMS:
            document = figures_of_document(program)
            told = ", ".join(
                ([f"{seconds_text(document['seconds'])} s"] if "seconds" in document else []) +
                ([f"{document['accuracy']:g} %"] if "accuracy" in document else []))
            sides = [self.side(program.key, name) for name in SIDES]
            cells = [self.overview_cell(program.key, side) for side in sides]
            cells[1] = cells[1] if program.peer else ""
            # Ranks that have stopped leave the cores to the others.
            uneven = program.ranks > 1 and sides[0] and lines.converged(sides[0]["tail"])
            ratio = (f"{epoch_seconds(sides[1]) / epoch_seconds(sides[0]):.1f}x"
                     if all(sides) and not uneven else "")
            ranks = sides[0]["ranks"] if sides[0] else program.ranks
            rows.append([program.key, str(ranks), told, *cells, ratio])
        return table(["run", "ranks", "document", "tandem", "PyTorch", "an epoch"], rows)

    def overview_cell(self, key, side):
        if not side:
            return "not measured"
        text = f"{seconds_text(side['seconds'])} s, {side['test_accuracy']:.2f} %"
        epochs = self.epochs_text(key, side)
        return text + (f" ({epochs})" if " " in epochs else "")

    def costs(self):
        """Traffic, waiting time and memory of each of tandem's runs."""
        rows = []
        for program in PROGRAMS:
            side = self.side(program.key, "ours")
            if side and "peak_memory_mib" in side:
                rows.append([program.key, str(side["ranks"]),
                             f"{side['samples_per_second']:.0f}",
                             f"{side['bytes_sent_per_rank'] / 1e6:.1f}",
                             f"{side['exposed_comm_ms_per_step']:.2f}",
                             f"{side['peak_memory_mib']:.0f}"])
        return table(["run", "ranks", "samples/s", "MB/rank", "comm ms", "MiB"], rows)

    def machine(self):
        """Each machine and commit once, with the runs' dates."""
        found = {}
        sides = [side for run in [*self.record["runs"].values(),
                                  *self.record["examples"].values()] for side in run.values()]
        for side in sides:
            about = (f"{side['cpu']}, {side['cores']} cores, {side['instruction_sets']}; "
                     f"commit {side['commit']}")
            found.setdefault(about, []).append(side)
        told = []
        for about, parts in found.items():
            dates = sorted({side["date"] for side in parts})
            loads = [side["load"] for side in parts]
            told.append(f"* {about}; {', '.join(dates)}; load average before a run "
                        f"{min(loads):g} to {max(loads):g}.")
        versions = sorted({side["torch"] for side in sides if "torch" in side})
        return "\n".join([*told, f"* PyTorch {', '.join(versions)}."] if told else
                         ["Nothing is measured yet."])


WORDS = ("command", "figures", "lines", "times", "value", "curve", "scaling", "example",
         "overview", "costs", "machine")


def render(record, template):
    """(the page, {name of a chart: SVG})."""
    page = Page(record)

    def fill(match):
        word, *arguments = match[1].split()
        if word not in WORDS:
            raise ValueError(f"documents.in.md: no word {word}; there are {', '.join(WORDS)}")
        unknown = [one for one in arguments if one[:1] == "0" and "-" in one
                   and one not in BY_KEY and one + "-1" not in BY_KEY]
        if unknown or (word == "example" and arguments[0] not in EXAMPLES):
            raise ValueError(f"documents.in.md: {match[0]} names no run")
        return getattr(page, word)(*arguments)
    return re.sub(r"\{\{([^}]+)\}\}", fill, template), page.charts


def read_template():
    with open(TEMPLATE, encoding="utf-8") as file:
        text = file.read()
    return re.sub(r"\A<!--.*?-->\n+", "", text, flags=re.S)


def files(record):
    """{path: content} of all that is made."""
    text, charts = render(record, read_template())
    made = {os.path.join(ROOT, "docs", "documents.md"): text}
    made.update({os.path.join(PAGE, name): svg for name, svg in charts.items()})
    return made

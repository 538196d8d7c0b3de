"""The lines that programs print: which of them are recorded, and their numbers."""
import re


def place(program, line):
    found = re.match(program.line, line)
    return tuple(int(found[name]) for name in sorted(found.groupdict())) if found else None


def numbered(program, output):
    """The numbered lines in the order of their places, since ranks print in any order. If
    ranks print lines with the same place, the first of them."""
    lines = {}
    for line in output.splitlines():
        at = place(program, line)
        if at is not None:
            lines.setdefault(at, line.rstrip())
    return [lines[at] for at in sorted(lines)]


def others(starts, output):
    """Different lines that begin with one of `starts`, in its order and then sorted."""
    return [line for start in starts for line in sorted(
        {line.rstrip() for line in output.splitlines() if re.match(start, line)})]


def last_of_each(starts, output):
    """The last line of each start, but every line about a rank that converged."""
    kept = []
    for start in starts:
        found = [line.rstrip() for line in output.splitlines() if line.startswith(start)]
        kept += sorted(found) if start.startswith("---") else found[-1:]
    return kept


def recorded(program, output):
    """The part of an output that docs/tutorials/figures.json holds."""
    lines = numbered(program, output)
    made = {"num_lines": len(lines), "head": others(program.head, output),
            "tail": last_of_each(program.tail, output)}
    if program.keep:
        made["lines"] = lines
    elif lines:
        made["lines"] = [lines[i] for i in shown(len(lines))]
    tests = re.findall(r"^Test set: .*Accuracy: (\d+)/(\d+)", output, re.M)
    if len(tests) > 1:
        made["tests"] = [100 * int(right) / int(of) for right, of in tests]
    return made


def shown(count):
    """First, tenth and last."""
    return sorted({0, min(9, count - 1), count - 1})


def epochs_made(program, output):
    """Counted in the lines if ranks stop when they have converged; else None."""
    if not program.keep:
        return None
    return max((place(program, line)[0] for line in numbered(program, output)), default=None)


def curve(lines, rank=0):
    """[(epoch, loss, accuracy)] of one rank, from tutorial 001's lines."""
    found = []
    for line in lines:
        match = re.match(r"rank: (\d+) -- epoch: (\d+) --> loss: ([\d.]+) -- "
                         r"accuracy: ([\d.]+)%", line)
        if match and int(match[1]) == rank:
            found.append((int(match[2]), float(match[3]), float(match[4])))
    return found


def converged(lines):
    """{rank: epochs} of the ranks that converged."""
    found = (re.search(r"Converged on rank (\d+) after (\d+) epochs", line) for line in lines)
    return {int(match[1]): int(match[2]) for match in found if match}

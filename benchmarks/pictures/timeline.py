"""One step of two ranks, with a flat and with an overlapped all-reduce, from traces."""
import json
import os
import statistics
import tempfile
import time

from draw import ACTIVATIONS, GRADIENTS, NOTE, PARAMETERS, PLATE, STATE, TINTS, Picture
import hosts

ROOT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..")
RECORD = os.path.join(ROOT, "docs", "pictures", "timeline.json")
TRIES = 3
# The first steps of a run allocate memory.
SKIPPED = 3
WAYS = {"flat": "One all-reduce after backward (--sync flat)",
        "overlap": "Overlapped with backward (--sync overlap, the default)"}


def steps_of(traces):
    """The steps of the traces of two ranks, in ms: for each rank, when forward, backward,
    each all-reduce and the update begin and end. Forward includes loading the batch."""
    ranks = []
    for trace in traces:
        steps = []
        for event in (e for e in trace["traceEvents"] if e["ph"] == "X"):
            name, start = event["name"], event["ts"] / 1000
            end = start + event["dur"] / 1000
            if name.startswith("ProfilerStep#"):
                steps.append({"forward": [start, end], "all_reduce": []})
            elif name == "forward":
                steps[-1]["forward"][1] = end
            elif name in ("backward", "update"):
                steps[-1][name] = [start, end]
            elif event["cat"] == "all_reduce" and name.startswith("bucket "):
                steps[-1]["all_reduce"].append([start, end, event["args"]["bytes"]])
        ranks.append(steps)
    return list(zip(*ranks))[SKIPPED:]


def duration(step):
    return step[0]["update"][1] - step[0]["forward"][0]


def read_trace(folder, rank):
    path = os.path.join(folder, "0", "trace", f"rank-{rank}.json")
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def record(program, data):
    """Trains on two hosts, one rank each, over a link of 1 Gbit/s, and writes the median
    step of each way to timeline.json. Needs root."""
    flags = ["--data", data, "--limit", "2560", "--epochs", "1", "--nproc", "1", "--trace"]
    found = {way: [] for way in WAYS}
    with hosts.Hosts(2, "1gbit") as pair:
        bench = json.loads(pair.run_ranks([[
            program, "bench", "step", "--model", "net", "--data", data, "--threads", "1",
            "--json"]] * 2).strip().splitlines()[-1])
        for _ in range(TRIES):
            for way, steps in found.items():
                with tempfile.TemporaryDirectory(prefix="tandem-trace-") as folder:
                    recipe = os.path.join(ROOT, "recipes", f"ddp-manual-{way}.toml")
                    command = [program, "train", recipe, *flags, "--out"]
                    pair.run_ranks([[*command, os.path.join(folder, str(rank))]
                                    for rank in range(2)])
                    steps += steps_of([read_trace(folder, rank) for rank in range(2)])
    ways = {}
    for way, steps in found.items():
        middle = statistics.median_low([duration(step) for step in steps])
        ways[way] = {"steps": len(steps),
                     "ranks": next(step for step in steps if duration(step) == middle)}
    with open(RECORD, "w", encoding="utf-8") as file:
        json.dump({"date": time.strftime("%Y-%m-%d"), "cpu": bench["cpu"],
                   "instruction_sets": bench["instruction_sets"], "load": os.getloadavg()[0],
                   "command": "tandem train RECIPE --limit 2560 --trace", "ways": ways},
                  file, indent=1)
        file.write("\n")


def segment(picture, left, right, top, color, words, anchor="middle"):
    picture.box(left, top, right - left, 20, TINTS[color], color, 2)
    if right - left > 8 * len(words):
        x = (left + right) / 2 if anchor == "middle" else left + 10
        picture.text(x, top + 14, words, 11, color, anchor)


def draw():
    """The picture of timeline.json."""
    with open(RECORD, encoding="utf-8") as file:
        made = json.load(file)
    picture = Picture(760, 452, "One step of two ranks: all-reduce after backward, and "
                                "overlapped with backward")
    picture.text(20, 30, "One training step on two hosts", 16, bold=True)
    x = 330
    for color, words in ((ACTIVATIONS, "forward"), (PARAMETERS, "backward"),
                         (GRADIENTS, "all-reduce"), (STATE, "update")):
        x = picture.key(x, 30, color, words, size=11)
    longest = max(duration(way["ranks"]) for way in made["ways"].values())
    left, scale = 120, 560 / longest
    for place, (way, title) in enumerate(WAYS.items()):
        ranks = made["ways"][way]["ranks"]
        zero, top = ranks[0]["forward"][0], 64 + 164 * place
        picture.text(20, top, title, 13, bold=True)

        def at(ms):
            return left + scale * (ms - zero)
        for rank, step in enumerate(ranks):
            row = top + 12 + 58 * rank
            picture.text(20, row + 28, f"rank {rank}", 12, bold=True)
            picture.text(left - 6, row + 14, "compute", 10, NOTE, "end")
            picture.text(left - 6, row + 38, "network", 10, NOTE, "end")
            idle = at(step["backward"][1])
            picture.box(idle, row, at(step["update"][0]) - idle, 20, PLATE, NOTE, 2, dash=True)
            if at(step["update"][0]) - idle > 40:
                picture.text((idle + at(step["update"][0])) / 2, row + 14, "waits", 11, NOTE,
                             "middle")
            for name, color in (("forward", ACTIVATIONS), ("backward", PARAMETERS),
                                ("update", STATE)):
                segment(picture, *map(at, step[name]), row, color, name)
            launches = step["all_reduce"]
            size = sum(launch[2] for launch in launches) / 1e6
            last_end = max(launch[1] for launch in launches)
            segment(picture, at(launches[0][0]), at(last_end), row + 24, GRADIENTS,
                    f"all-reduce of {size:.1f} MB", "start")
            for start, _, _ in launches:
                picture.path([(at(start), row + 22), (at(start), row + 46)], GRADIENTS)
        end = at(ranks[0]["update"][1])
        picture.path([(end, top + 4), (end, top + 126)], NOTE, 1, dash=True)
        picture.text(end + 6, top + 4, f"{duration(ranks):.0f} ms", 13, bold=True)
    bottom = 64 + 164 * 2 - 18
    picture.path([(left, bottom), (left + 560, bottom)], NOTE, 1)
    for ms in range(0, int(longest) + 1, 10):
        picture.path([(left + scale * ms, bottom), (left + scale * ms, bottom + 5)], NOTE, 1)
        picture.text(left + scale * ms, bottom + 18, f"{ms} ms", 10, NOTE, "middle")
    isa = "AVX-512" if "avx512f" in made["instruction_sets"] else "AVX2"
    least = min(way["steps"] for way in made["ways"].values())
    picture.lines(20, 424, [
        f"net, batch 64, Gloo over a link of 1 Gbit/s; {made['cpu']} ({isa}), one core per rank, "
        f"{made['date']}; median of {least} steps.",
        "Marks in a network lane are launches of buckets. Forward includes loading the batch."],
        11)
    return picture.svg()

#!/usr/bin/env python3
"""Compares the event files of a run with its metrics.jsonl, with TensorBoard's reader.

usage: compare_events.py RUN

Prints the number of values for each tag, such as "train/loss 40", or the first differing
tag. Needs the package tensorboard.
"""
import json
import sys

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def tag_of(kind, key):
    return f"{kind}/{key[len(kind) + 1:] if key.startswith(kind + '_') else key}"


def read_metrics(path):
    """Returns the pairs of step and value for each tag."""
    values = {}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["kind"] == "resume":
                continue  # Event files have no mark of a resume.
            for key, value in line.items():
                if isinstance(value, (int, float)) and key not in ("format_version", "step"):
                    pair = line["step"], float(np.float32(value))
                    values.setdefault(tag_of(line["kind"], key), []).append(pair)
    return values


def read_events(folder):
    # With 0, the reader keeps all values.
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]}


def main():
    run, = sys.argv[1:]
    metrics = read_metrics(f"{run}/metrics.jsonl")
    events = read_events(f"{run}/tensorboard")
    for tag in sorted(metrics.keys() | events.keys()):
        if metrics.get(tag) != events.get(tag):
            sys.exit(f"{tag}: metrics {metrics.get(tag)}, events {events.get(tag)}")
        print(tag, len(events[tag]))


if __name__ == "__main__":
    main()

"""Changes since an earlier report, as ratios of its figures."""
import json


def read_rows(path):
    """The figures of an earlier .jsonl by name. Exits if the file has none."""
    rows = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                if entry.get("kind") == "row" and "verdict" in entry:
                    rows[entry["what"]] = entry
    except (OSError, ValueError, AttributeError) as error:
        raise SystemExit(f"bench: --against {path}: {error}; set it to a .jsonl "
                         "that scripts/bench wrote") from error
    if not rows:
        raise SystemExit(f"bench: --against {path}: it has no figures; set it to a "
                         ".jsonl that scripts/bench wrote")
    return rows


def value_of(row):
    return row.get("ratio") or row["above"]


def change(now, before):
    """Returns the factor, and whether the spreads do not overlap."""
    new, old = value_of(now), value_of(before)
    apart = new["p10"] > old["p90"] or new["p90"] < old["p10"]
    return new["median"] / old["median"], apart


def text(rows, earlier):
    """A table of the figures that both reports have."""
    lines = ["| measure | before | now | now / before | |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        before = earlier.get(row["what"])
        if "verdict" not in row or before is None:
            continue
        factor, apart = change(row, before)
        values = [f"{value_of(entry)['median']:.4g} ({value_of(entry)['p10']:.4g} to "
                  f"{value_of(entry)['p90']:.4g})" for entry in (before, row)]
        lines.append(f"| {row['what']} | {values[0]} | {values[1]} | {factor:.3f} | "
                     f"{'beyond the spread' if apart else ''} |")
    return "\n".join(lines) if len(lines) > 2 else "No figure is in both."

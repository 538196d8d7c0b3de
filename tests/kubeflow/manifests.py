"""The manifests in examples/schedulers/kubernetes."""

import pathlib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/schedulers/kubernetes"


def manifest(name):
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text())

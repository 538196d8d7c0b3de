"""The models of Kubeflow's resources, from PyPI's kubeflow-trainer-api and kubeflow-training."""

import glob
import json
import os
import sys

PACKAGES = ("kubeflow_trainer_api", "kubeflow.training")


def add_packages():
    """Adds the packages that scripts/setup --torchrun has installed to sys.path."""
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # First, because Debian's typing_extensions is too old for pydantic.
    sys.path[:0] = glob.glob(f"{cache}/tandem/torchrun/lib/{version}/site-packages")


def obstacle():
    """The reason why resources cannot be compared with the models, "" if there is none."""
    add_packages()
    try:
        for package in PACKAGES:
            __import__(package)
    except ImportError as error:
        return f"{error}; scripts/setup --torchrun installs Kubeflow's models"
    return ""


def through_trainer_model(resource, model):
    """What kubeflow-trainer-api's model keeps of a resource; it drops unknown fields."""
    from kubeflow_trainer_api import models
    return json.loads(json.dumps(getattr(models, model).from_dict(resource).to_dict(),
                                 default=str))


def through_operator_model(resource, model):
    """What kubeflow-training's model keeps of a resource; it drops unknown fields."""
    from kubeflow.training import ApiClient

    class Response:
        data = json.dumps(resource)

    client = ApiClient()
    return client.sanitize_for_serialization(client.deserialize(Response, model))


def through_model(resource):
    kind = resource["kind"]
    if resource["apiVersion"] == "kubeflow.org/v1":
        return through_operator_model(resource, f"KubeflowOrgV1{kind}")
    return through_trainer_model(resource, f"TrainerV1alpha1{kind}")

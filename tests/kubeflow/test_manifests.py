"""Compares the manifests for Kubernetes with Kubeflow's models (models.py)."""

import copy
import sys
import unittest

import models
from manifests import FOLDER, manifest

SKIPPED = 77


class Manifests(unittest.TestCase):
    def test_have_only_fields_of_the_models(self):
        for path in sorted(FOLDER.glob("*.yaml")):
            with self.subTest(path.name):
                resource = manifest(path.stem)
                self.assertEqual(models.through_model(resource), resource)

    def test_with_wrong_fields_are_not_accepted(self):
        for name, change in (
                ("trainjob", lambda spec: spec["trainer"].update(numNode=2)),
                ("trainjob", lambda spec: spec["trainer"].update(numNodes="two")),
                ("runtime", lambda spec: spec["template"]["spec"]["failurePolicy"].update(
                    maxRestart=3)),
                ("pytorchjob", lambda spec: spec.update(nProcPerNode="2")),
                ("mpijob", lambda spec: spec.update(slots=2))):
            with self.subTest(name):
                resource = copy.deepcopy(manifest(name))
                change(resource["spec"])
                try:
                    kept = models.through_model(resource)
                except ValueError:
                    continue
                self.assertNotEqual(kept, resource)


if __name__ == "__main__":
    if models.obstacle():
        print("skipped: " + models.obstacle())
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)

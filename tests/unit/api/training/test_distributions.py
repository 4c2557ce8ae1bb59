"""Which package to install for a module that a program did not find."""

from __future__ import annotations

import pytest

from trainmaster.api.training.distributions import find_distribution, find_missing_module

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("error", "want"),
    [
        ("ModuleNotFoundError: No module named 'cv2'", "opencv-python"),
        ("ModuleNotFoundError: No module named 'sklearn.linear_model'", "scikit-learn"),
        ("ModuleNotFoundError: No module named 'PIL'", "pillow"),
        ("ModuleNotFoundError: No module named 'yaml'", "pyyaml"),
        ("ModuleNotFoundError: No module named 'google.protobuf'", "protobuf"),
        ("ModuleNotFoundError: No module named 'pytorch_lightning'", "pytorch-lightning"),
        ("ModuleNotFoundError: No module named 'mlflow'", "mlflow"),
        ("ModuleNotFoundError: No module named 'distutils'", "setuptools"),
        ("ModuleNotFoundError: No module named 'torch.nothing'", ""),
        ("ModuleNotFoundError: No module named 'tkinter'", ""),
        ("ModuleNotFoundError: No module named '_ctypes'", ""),
        ("ModuleNotFoundError: No module named 'helpers'", ""),
        ("ModuleNotFoundError: No module named 'helpers.data'", ""),
        ("ModuleNotFoundError: No module named '; rm -rf /'", ""),
        ("ImportError: cannot import name 'x' from 'y'", ""),
    ],
)
def test_the_package_of_a_missing_module(error: str, want: str) -> None:
    module = find_missing_module(error)
    assert (find_distribution(module, {"train", "helpers"}) if module else "") == want

"""The distribution that provides a Python module, where pip knows it by another name. Pure data."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection

_MISSING = r"ModuleNotFoundError: No module named '([A-Za-z_][\w.]{0,99})'"
_NAMES = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "IPython": "ipython",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "gitpython",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "jwt": "pyjwt",
    "kafka": "kafka-python",
    "magic": "python-magic",
    "nacl": "pynacl",
    "osgeo": "gdal",
    "pkg_resources": "setuptools",
    "psycopg2": "psycopg2-binary",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "skopt": "scikit-optimize",
    "slugify": "python-slugify",
    "umap": "umap-learn",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "wx": "wxpython",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
"""Module to distribution, where the names differ by more than dashes, and for parts of namespace packages."""


def find_missing_module(error: str) -> str:
    """The module that an exception says is missing; "" if it says something else."""
    found = re.match(_MISSING, error)
    return found[1] if found else ""


def find_distribution(module: str, own: Collection[str]) -> str:
    """What to install for a missing module; "" if it is Python's, or one of the program's `own`. Anybody can register a
    distribution with the name of somebody's own module."""
    top = module.partition(".")[0]
    if top in own:
        return ""
    if known := _NAMES.get(module) or _NAMES.get(top):
        return known
    if "." in module or top in sys.stdlib_module_names or top.startswith("_"):
        return ""  # of a dotted name the first part was found
    return top.replace("_", "-")

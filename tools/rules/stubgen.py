"""Describes an extension module in Python's stub syntax, with the generator that nanobind brings."""

import sys

from nanobind import stubgen

if __name__ == "__main__":
    stubgen.main(sys.argv[1:])

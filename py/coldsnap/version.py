"""The version of coldsnap, in one place: receipts, the wheel and ``coldsnap.__version__`` all say this."""

VERSION = "0.1.0"

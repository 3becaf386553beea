"""`bazel run //bench:calibrate -- [flags]`: the same as `coldsnap calibrate`."""

import sys

from coldsnap.calibrate import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))

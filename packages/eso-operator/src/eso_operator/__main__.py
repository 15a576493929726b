"""`python -m eso_operator`."""

import sys

from eso_operator.main import main

if __name__ == "__main__":
    sys.exit(main())

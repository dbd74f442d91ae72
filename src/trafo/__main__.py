"""`python -m trafo` is `trafo`."""

import sys

from trafo.cli.main import main

sys.exit(main())

"""`python -m convert_tf` is the command `convert-tf`."""

import sys

from convert_tf.cli.main import main

sys.exit(main())

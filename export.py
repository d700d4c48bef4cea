"""`python export.py …` is `convert-tf export …`."""

import sys

from convert_tf.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]], program="export.py"))

"""Run `convert-tf export`, so that `python export.py …` does the same."""

import sys

from convert_tf.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]], program="export.py"))

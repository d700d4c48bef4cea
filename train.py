"""Run `convert-tf train`, so that `python train.py …` does the same."""

import sys

from convert_tf.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]], program="train.py"))

"""`python train.py …` is `convert-tf train …`."""

import sys

from convert_tf.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]], program="train.py"))

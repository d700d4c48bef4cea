"""Copy a poly-encoder, and raise its number of codes and the maximum lengths of its texts.

    python3 hub_modules/recipes/more_codes.py work/runs/rerank_poly work/runs/more_codes

Numbers that are already higher are kept. No further training is needed, because in the variant
`last_m` none of these numbers changes the shape of a weight. Other variants are refused.
"""

import json
import shutil
import sys
from pathlib import Path

from convert_tf.storage.checksums import record_checksums

_HEAD = {"poly_codes": 64, "max_context_tokens": 64, "max_candidate_tokens": 40}


def main(run: str, output: str) -> None:
    config = json.loads((Path(run) / "config.json").read_text(encoding="utf-8"))
    head = config["head"]
    kind = (head["head"], head["poly_variant"])
    if kind != ("poly", "last_m"):
        raise ValueError(
            f"{run!r} must be a poly-encoder of the variant last_m. Received: head {kind[0]}, "
            f"poly_variant {kind[1]}."
        )
    for name, value in _HEAD.items():
        head[name] = max(head[name], value)
    part = Path(f"{output}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(run, part, ignore=shutil.ignore_patterns("checkpoints", "logs", ".lock"))
    path = part / "config.json"
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    record_checksums(part, [path.name])
    part.rename(output)


if __name__ == "__main__":
    main(*sys.argv[1:])

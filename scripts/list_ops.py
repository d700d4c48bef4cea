"""List the ops and attributes of the oldest TensorFlow version that modules support.

Run this script with that version. It does not need convert_tf, whose
`convert_tf/export/hub/portable.py` reads the list:

    venv-2.6/bin/python scripts/list_ops.py > convert_tf/export/hub/ops_of_tensorflow_2_6.txt

The first line lists all types. Each other line is an op that has a CPU kernel, followed by its
attributes. If an attribute is a type, the types that the kernels accept follow after a colon. Ops
for data sets, training and summaries are left out, because modules never contain them.
"""

import re
import sys

import tensorflow_text  # noqa: F401 (registers ops)
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import kernels

_LEFT_OUT = re.compile(
    "Apply|Barrier|Boosted|Candidate|Collective|Dataset|Experimental|Fingerprint|Iterator|Queue|"
    "Reader|Sdca|Summary|TPU|Xla|[fF]ft|FFT|Image|Jpeg|Png|Gif|Bessel|Scatter.*[A-Z].*Var"
)


def _types(attribute, own_kernels):
    """Return the types that kernels accept, or all types of the op if a kernel has no limits."""
    taken = set()
    for kernel in own_kernels:
        lists = [c.allowed_values.list.type for c in kernel.constraint if c.name == attribute.name]
        if not lists:
            return sorted(attribute.allowed_values.list.type)
        taken.update(lists[0])
    return sorted(taken)


def main():
    ops = op_def_pb2.OpList()
    ops.ParseFromString(bytes(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())))
    by_op = {}
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type in ("CPU", "DEFAULT"):
            by_op.setdefault(kernel.op, []).append(kernel)
    names = types_pb2.DataType.keys()
    types = [name[3:].lower() for name in names if not name.endswith("_REF")]
    sys.stdout.write("types:" + ",".join(types) + "\n")
    for op in sorted(ops.op, key=lambda op: op.name):
        if op.name not in by_op or _LEFT_OUT.search(op.name):
            continue
        words = [op.name]
        for attribute in op.attr:
            types = _types(attribute, by_op[op.name]) if attribute.type == "type" else []
            names = ",".join(types_pb2.DataType.Name(each)[3:].lower() for each in types)
            words.append(attribute.name + (":" + names if names else ""))
        sys.stdout.write(" ".join(words) + "\n")


main()

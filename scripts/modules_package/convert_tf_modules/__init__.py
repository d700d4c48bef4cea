"""Modules of convert_tf as files; `convert_tf.module_path("convert")` finds them here."""

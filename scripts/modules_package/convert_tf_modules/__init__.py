"""Released modules of convert_tf, where `convert_tf.module_path("convert")` finds them."""

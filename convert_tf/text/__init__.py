"""Text: vocabularies and tokenizers, with and without TensorFlow."""

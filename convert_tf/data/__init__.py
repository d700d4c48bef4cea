"""Turn examples into batches: records and token ids on disk, shuffling, packing, negatives."""

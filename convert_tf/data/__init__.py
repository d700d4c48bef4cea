"""Turn examples into batches: records and token ids on disk, their order, packing, negatives."""

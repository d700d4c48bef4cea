"""Observe two steps of a training run, to see whether an option changes it."""

import itertools

import numpy as np
import pytest


def observed_steps(train, observe=lambda run: {}) -> dict:
    """Return observations of the first two steps of a run, executed without a graph.

    Args:
      train: starts the run.
      observe: takes the run; returns further observations.
    """
    seen = {}

    def two_steps(run, step, termination):
        model = run.model
        model.run_eagerly = True
        losses, rates, shapes = [], [], []
        for batch, _, _ in itertools.islice(run.batches(0), 2):
            losses.append(np.asarray(model.train_on_batch(batch)).tolist())
            rates.append(float(np.asarray(model.optimizer.learning_rate)))
            shapes.append({name: value.shape for name, value in batch.items()})
        # `variables` would include the dropout seeds, which exist even without dropout.
        weights = [np.asarray(v).tolist() for v in model.encoder.weights]
        seen.update(losses=losses, rates=rates, shapes=shapes, weights=weights, **observe(run))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("convert_tf.training.loop.take_steps", two_steps)
        train()
    return seen

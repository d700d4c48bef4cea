"""Which single texts are trained on beside which pairs."""

import numpy as np

from convert_tf.data.negatives import scattered
from convert_tf.data.packing import TokenIds
from convert_tf.data.teacher_vectors import TeacherVectors
from convert_tf.data.utterances import NO_LABEL, Utterances


class UtteranceDraws:
    """Single texts for each place in the order of pairs, so that a resumed run goes on with them.

    Each text comes once in an epoch of their own. With `in_pairs` every other one is a further text
    of the same intent as the one before it, drawn at random; any other text where it has none.

    Args:
      utterances: the texts.
      per_pair: texts beside a pair.
      seed: of the order.
      in_pairs: whether texts of one intent are drawn together; `per_pair` is even then.
      teacher: their vectors; None for none.

    Raises:
      ValueError: `per_pair` is odd with `in_pairs`.
    """

    def __init__(
        self,
        utterances: Utterances,
        *,
        per_pair: int,
        seed: int,
        in_pairs: bool = False,
        teacher: TeacherVectors | None = None,
    ):
        if in_pairs and per_pair % 2:
            raise ValueError(
                f"utterances_per_pair is {per_pair}, and the contrast of intents draws texts in "
                "twos. Pass an even number."
            )
        self.per_pair = per_pair
        self._utterances = utterances
        self._seed = seed
        self._in_pairs = in_pairs
        self._teacher = teacher
        self._orders: dict[int, np.ndarray] = {}
        intents = utterances.intents
        self._by_intent = np.argsort(intents, kind="stable")
        self._sorted_intents = intents[self._by_intent]

    def draw(self, positions: np.ndarray) -> np.ndarray:
        """The texts beside some pairs.

        Args:
          positions: int64 `[pairs]`, their places in the endless order of pairs.

        Returns:
          int64 `[pairs, per_pair]`, numbers of texts.
        """
        own = self.per_pair // 2 if self._in_pairs else self.per_pair
        places = positions[:, None] * own + np.arange(own)
        epochs, within = np.divmod(places, self._utterances.examples.num_examples)
        numbers = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            of_epoch = epochs == epoch
            numbers[of_epoch] = self._order(epoch)[within[of_epoch]]
        if not self._in_pairs:
            return numbers
        return np.stack([numbers, self._partners(numbers, places)], axis=2).reshape(len(places), -1)

    def token_ids(self, numbers: np.ndarray) -> TokenIds:
        """The token ids of texts, int64 `[texts]`."""
        return self._utterances.examples.token_ids(numbers)

    def columns(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """What a batch says of texts.

        Args:
          numbers: int64 `[texts]`.

        Returns:
          int32 `[texts]`: `intent_groups`, equal where source and label are, −1 without a label,
          and `intent_names`, equal where labels are called the same; with a teacher `teacher_text`.
        """
        found = {
            "intent_groups": self._utterances.intents[numbers].astype(np.int32),
            "intent_names": self._utterances.label_names[numbers].astype(np.int32),
        }
        return found if self._teacher is None else {**found, **self._teacher.columns(numbers)}

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            while len(self._orders) > 1:
                self._orders.pop(next(iter(self._orders)))
            rng = np.random.default_rng([self._seed, epoch])
            self._orders[epoch] = rng.permutation(self._utterances.examples.num_examples)
        return self._orders[epoch]

    def _partners(self, numbers: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Of each text another one of its intent, or any other."""
        keys = scattered(np.full(places.shape, self._seed, np.uint64))
        keys = scattered(keys + places.astype(np.uint64))
        intents = self._utterances.intents[numbers]
        starts = np.searchsorted(self._sorted_intents, intents, side="left")
        sizes = np.searchsorted(self._sorted_intents, intents, side="right") - starts
        has_other = (intents != NO_LABEL) & (sizes > 1)
        total = len(self._by_intent)
        starts, sizes = np.where(has_other, starts, 0), np.where(has_other, sizes, total)
        chosen = starts + (keys % sizes.astype(np.uint64)).astype(np.int64)
        is_same = self._by_intent[chosen] == numbers
        following = starts + (chosen - starts + 1) % sizes
        return self._by_intent[np.where(is_same, following, chosen)]

"""The part of a SparkContext that `prepare` uses, in this process. Every task runs twice."""

import pickle


class SparkInMemory:
    """A cluster without processes: inputs and outputs of tasks are pickled."""

    defaultParallelism = 3  # noqa: N815

    def __init__(self):
        self.num_tasks = 0
        self.after_job = None  # called with the number of jobs so far
        self.shuffles = []
        self._num_jobs = 0

    def lose_shuffles(self):
        """Drop the outputs of all shuffles, as if all workers were killed. They are recomputed."""
        for shuffled in self.shuffles:
            shuffled.clear()

    def parallelize(self, items, num_partitions):
        items = list(items)
        return _Items(self, lambda: [items[n::num_partitions] for n in range(num_partitions)])

    def runJob(self, items, function, partitions):  # noqa: N802
        results = [one for n in partitions for one in function(items.partitions()[n])]
        self._num_jobs += 1
        if self.after_job:
            self.after_job(self._num_jobs)
        return results

    def attempts(self, function, items):
        """Run a task twice and return the second output, as if a worker had lost the first one."""
        self.num_tasks += 1
        first, second = (pickle.loads(pickle.dumps(list(function(iter(items))))) for _ in range(2))
        assert len(first) == len(second)
        return second


class _Items:
    """Stands in for an RDD whose shuffle outputs are stored, as in Spark."""

    def __init__(self, context, make):
        self.context = context
        self._make = make

    def partitions(self):
        return self._make()

    def mapPartitions(self, function):  # noqa: N802
        attempts = self.context.attempts
        return _Items(self.context, lambda: [attempts(function, one) for one in self.partitions()])

    def union(self, other):
        return _Items(self.context, lambda: [*self.partitions(), *other.partitions()])

    def repartitionAndSortWithinPartitions(self, num_partitions, partitioner):  # noqa: N802
        shuffled = []
        self.context.shuffles.append(shuffled)

        def make():
            if not shuffled:
                shuffled.extend([] for _ in range(num_partitions))
                for items in reversed(self.partitions()):
                    for key, value in items:
                        shuffled[partitioner(key)].append((key, value))
                for items in shuffled:
                    items.sort(key=lambda item: item[0])
            return shuffled

        return _Items(self.context, make)

    def collect(self):
        return [one for items in self.partitions() for one in items]

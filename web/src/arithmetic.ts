/** Worker for arithmetic on many vectors, so that it delays neither typing nor the model. */

import { flatMap, IntentHead, nearPairs, type Pair, type Share, unit } from "./vectors";

export type Task =
  | { type: "intents"; examples: Float32Array[]; labels: string[]; tests: Float32Array[] }
  | { type: "compare"; vectors: Float32Array[]; least: number; most: number };

export interface Compared {
  /** The most similar pairs, at most `most` of them. */
  pairs: Pair[];
  /** The number of all pairs with a similarity of at least `least`. */
  total: number;
  /** Indices of the vectors that occur in any such pair. */
  near: number[];
  places: [number, number][];
}

/** The best label of each test, or the result of `compared`, and the computation time. */
export type Done = { id: number; milliseconds: number } & (
  | { type: "done"; result: Share[] | Compared }
  | { type: "failed"; message: string }
);

function intents(task: Task & { type: "intents" }): Share[] {
  const head = IntentHead.train(task.examples.map(unit), task.labels);
  return task.tests.map((test) => head.predict(unit(test))[0]);
}

function compared(task: Task & { type: "compare" }): Compared {
  const vectors = task.vectors.map(unit);
  const pairs = nearPairs(vectors, task.least);
  return {
    pairs: pairs.slice(0, task.most),
    total: pairs.length,
    near: [...new Set(pairs.flatMap((each) => [each.first, each.second]))],
    places: flatMap(vectors),
  };
}

self.onmessage = (event: MessageEvent<Task & { id: number }>) => {
  const task = event.data;
  const started = performance.now();
  const end = () => ({ id: task.id, milliseconds: performance.now() - started });
  try {
    const result = task.type === "intents" ? intents(task) : compared(task);
    self.postMessage({ type: "done", result, ...end() } satisfies Done);
  } catch (error) {
    self.postMessage({ type: "failed", message: String(error), ...end() } satisfies Done);
  }
};

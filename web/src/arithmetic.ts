/** Arithmetic on many vectors in a thread of its own, so that neither typing nor the model waits. */

import { flatMap, IntentHead, nearPairs, type Pair, type Share, unit } from "./vectors";

export type Task =
  | { type: "intents"; examples: Float32Array[]; labels: string[]; tests: Float32Array[] }
  | { type: "compare"; vectors: Float32Array[]; least: number; most: number };

export interface Compared {
  /** The most similar ones. */
  pairs: Pair[];
  /** How many there are. */
  total: number;
  /** Which vectors are in one. */
  near: number[];
  places: [number, number][];
}

/** The best label of each test, or what `compare` gives, with the milliseconds that it took. */
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

/** Arithmetic on vectors: similarities, a classifier and a map. */

export function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** Scale a vector to length 1. A zero vector stays zero. */
export function unit(vector: Float32Array): Float32Array {
  const norm = Math.sqrt(dot(vector, vector));
  return norm ? vector.map((each) => each / norm) : vector;
}

export interface Share {
  label: string;
  probability: number;
}

/** Logistic regression on vectors of length 1, trained by gradient descent with momentum. */
export class IntentHead {
  private constructor(
    readonly labels: string[],
    private readonly weights: Float32Array[],
    private readonly biases: Float32Array,
  ) {}

  /** Train on examples, which must have at least two different labels. */
  static train(vectors: Float32Array[], names: string[], steps = 300): IntentHead {
    const labels = [...new Set(names)].sort();
    const dim = vectors[0].length;
    const weights = labels.map(() => new Float32Array(dim));
    const biases = new Float32Array(labels.length);
    const head = new IntentHead(labels, weights, biases);
    const speeds = labels.map(() => new Float32Array(dim));
    const [rate, momentum, decay] = [2, 0.9, 1e-3];
    for (let step = 0; step < steps; step++) {
      const gradients = labels.map(() => new Float32Array(dim));
      const biasGradients = new Float32Array(labels.length);
      vectors.forEach((vector, row) => {
        const shares = head.probabilities(vector);
        labels.forEach((label, k) => {
          const error = (shares[k] - Number(names[row] === label)) / vectors.length;
          biasGradients[k] += error;
          for (let i = 0; i < dim; i++) gradients[k][i] += error * vector[i];
        });
      });
      labels.forEach((_, k) => {
        biases[k] -= rate * biasGradients[k];
        for (let i = 0; i < dim; i++) {
          speeds[k][i] = momentum * speeds[k][i] - rate * (gradients[k][i] + decay * weights[k][i]);
          weights[k][i] += speeds[k][i];
        }
      });
    }
    return head;
  }

  /** Return the labels with their probabilities, the most probable first. */
  predict(vector: Float32Array): Share[] {
    const shares = this.probabilities(vector);
    return this.labels
      .map((label, k) => ({ label, probability: shares[k] }))
      .sort((a, b) => b.probability - a.probability);
  }

  private probabilities(vector: Float32Array): number[] {
    const scores = this.weights.map((own, k) => dot(own, vector) + this.biases[k]);
    const highest = Math.max(...scores);
    const powers = scores.map((score) => Math.exp(score - highest));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  }
}

/** Project vectors to the two directions in which they differ most.
 *
 * Returns `[x, y]` for each vector, scaled so that the largest absolute value on each axis is 1. */
export function flatMap(vectors: Float32Array[], rounds = 60): [number, number][] {
  const dim = vectors[0].length;
  const mean = new Float32Array(dim);
  for (const vector of vectors) for (let i = 0; i < dim; i++) mean[i] += vector[i] / vectors.length;
  const centred = vectors.map((vector) => vector.map((each, i) => each - mean[i]));
  const axes: Float32Array[] = [];
  for (let axis = 0; axis < 2; axis++) {
    let direction = unit(centred[Math.min(axis, centred.length - 1)].map((each, i) => each + 1e-3 * ((i % 7) - 3)));
    for (let round = 0; round < rounds; round++) {
      const next = new Float32Array(dim);
      for (const row of centred) {
        const share = dot(row, direction);
        for (let i = 0; i < dim; i++) next[i] += share * row[i];
      }
      for (const other of axes) {
        const share = dot(next, other);
        for (let i = 0; i < dim; i++) next[i] -= share * other[i];
      }
      direction = unit(next);
    }
    axes.push(direction);
  }
  const places = centred.map((row) => [dot(row, axes[0]), dot(row, axes[1])] as [number, number]);
  const largest = [0, 1].map((k) => Math.max(1e-9, ...places.map((place) => Math.abs(place[k]))));
  return places.map(([x, y]) => [x / largest[0], y / largest[1]]);
}

export interface Pair {
  first: number;
  second: number;
  similarity: number;
}

/** Return the pairs with a similarity of at least `least`, the most similar first. */
export function nearPairs(vectors: Float32Array[], least: number): Pair[] {
  const found: Pair[] = [];
  for (let first = 0; first < vectors.length; first++)
    for (let second = first + 1; second < vectors.length; second++) {
      const similarity = dot(vectors[first], vectors[second]);
      if (similarity >= least) found.push({ first, second, similarity });
    }
  return found.sort((a, b) => b.similarity - a.similarity);
}

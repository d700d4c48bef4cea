// Compare the page's tokenizer and model, in Node, with results from Python (scripts/web_cases.py).

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { Encoder } from "../build/encoder.mjs";
import { Tokenizer } from "../build/tokenizer.mjs";
import { dot, flatMap, IntentHead, nearPairs, unit } from "../build/vectors.mjs";

const read = (name) => readFileSync(new URL(name, import.meta.url));
const data = JSON.parse(gunzipSync(read("../dist/tokenizer.json.gz")));

test("token ids are the same as in Python", () => {
  const { texts, ids } = JSON.parse(read("../build/ids.json"));
  const tokenizer = new Tokenizer(data);
  texts.forEach((text, i) => {
    const found = tokenizer.ids(text);
    if (found.length !== ids[i].length || found.some((id, k) => id !== ids[i][k]))
      assert.deepEqual(found, ids[i], JSON.stringify(text));
  });
  console.log(`${texts.length} texts`);
  assert.ok(texts.length >= 1000);
});

test("vectors are close to those from Python", async () => {
  const { texts, vectors } = JSON.parse(read("../build/vectors.json"));
  const model = gunzipSync(read("../dist/model.onnx.gz"));
  const encoder = await Encoder.open(model, data);
  for (const kind of Object.keys(vectors)) {
    const found = await encoder.encode(texts, kind);
    const cosines = [];
    found.forEach((vector, i) => {
      const expected = Float32Array.from(vectors[kind][i]);
      assert.equal(vector.length, expected.length);
      if (texts[i].trim()) cosines.push(dot(unit(vector), unit(expected)));
    });
    // Rounding to bytes depends on the processor's instructions. Texts of random characters differ most.
    cosines.sort((a, b) => a - b);
    assert.ok(cosines[0] > 0.85, `${kind} ${cosines[0]}`);
    assert.ok(cosines[cosines.length >> 1] > 0.99, `${kind} ${cosines[cosines.length >> 1]}`);
  }
});

test("an intent head recognises its training examples", () => {
  const examples = [[1, 0.1, 0], [0.9, 0, 0.1], [0, 1, 0.2], [0.1, 0.9, 0]].map((each) => unit(Float32Array.from(each)));
  const head = IntentHead.train(examples, ["a", "a", "b", "b"]);
  assert.deepEqual(head.labels, ["a", "b"]);
  examples.forEach((example, i) => {
    const shares = head.predict(example);
    assert.equal(shares[0].label, "aabb"[i]);
    assert.ok(Math.abs(shares[0].probability + shares[1].probability - 1) < 1e-6);
    assert.ok(shares[0].probability > 0.7);
  });
});

test("a map separates points that differ most", () => {
  const points = [[0, 0, 0], [1, 0, 0], [10, 0, 0], [10, 1, 0]].map((each) => Float32Array.from(each));
  const places = flatMap(points);
  const x = places.map(([first]) => first);
  assert.ok(Math.abs(x[0] - x[1]) < 0.3 && Math.abs(x[2] - x[3]) < 0.3 && Math.abs(x[0] - x[2]) > 1.5);
  assert.ok(places.flat().every((each) => Math.abs(each) <= 1));
});

test("similar pairs are sorted by similarity", () => {
  const vectors = [[1, 0], [0.8, 0.6], [0, 1]].map((each) => Float32Array.from(each));
  assert.deepEqual(
    nearPairs(vectors, 0.5).map(({ first, second }) => [first, second]),
    [[0, 1], [1, 2]],
  );
});

/** Worker that runs the model, so that it never delays typing. */

import { Encoder, type Kind } from "./encoder.js";
import { unpacked } from "./gzip.js";

export interface Ask {
  id: number;
  texts: string[];
  kind: Kind;
}

export type Told =
  | { type: "loading"; loaded: number; total: number }
  | { type: "ready"; milliseconds: number }
  | { type: "vectors"; id: number; vectors: Float32Array[]; milliseconds: number }
  | { type: "failed"; id?: number; message: string };

const tell = (told: Told) => self.postMessage(told);

/** The compressed size and the checksum of each large file. */
interface Manifest {
  files: Record<string, { bytes: number; hash: string }>;
}

/** Load and decompress a file. Report the number of bytes as they arrive. */
async function fetched(
  name: string,
  hash: string,
  count: (bytes: number) => void,
): Promise<ArrayBuffer> {
  const reply = await fetch(`${name}?v=${hash}`); // so that the browser's cache never returns another version
  if (!reply.ok || !reply.body) throw new Error(`${name}: ${reply.status} ${reply.statusText}`);
  const counted = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, controller) {
      count(piece.length);
      controller.enqueue(piece);
    },
  });
  return unpacked(reply.body.pipeThrough(counted));
}

async function open(): Promise<Encoder> {
  const started = performance.now();
  const { files } = (await (await fetch("assets.json")).json()) as Manifest;
  const total = Object.values(files).reduce((sum, each) => sum + each.bytes, 0);
  let loaded = 0;
  // If the browser decompresses a file itself, more bytes arrive than the file has.
  const count = (bytes: number) =>
    tell({ type: "loading", loaded: Math.min((loaded += bytes), total), total });
  const [model, wasm, data] = await Promise.all(
    ["model.onnx.gz", "ort.wasm.gz", "tokenizer.json.gz"].map((name) =>
      fetched(name, files[name].hash, count),
    ),
  );
  const tokenizer = JSON.parse(new TextDecoder().decode(data));
  const encoder = await Encoder.open(model, tokenizer, wasm);
  tell({ type: "ready", milliseconds: performance.now() - started });
  return encoder;
}

const opened = open();
opened.catch((error: unknown) => tell({ type: "failed", message: String(error) }));

self.onmessage = async (event: MessageEvent<Ask>) => {
  const { id, texts, kind } = event.data;
  try {
    const encoder = await opened;
    const started = performance.now();
    const vectors = await encoder.encode(texts, kind);
    tell({ type: "vectors", id, vectors, milliseconds: performance.now() - started });
  } catch (error) {
    tell({ type: "failed", id, message: String(error) });
  }
};

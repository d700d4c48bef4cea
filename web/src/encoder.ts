/** Encodes texts as vectors: tokenizes them and runs an .onnx file on batches of token ids. */

import * as ort from "onnxruntime-web/wasm";
import { Tokenizer, type TokenizerData } from "./tokenizer.js";

export type Kind = "sentence" | "context" | "response" | "similarity";

const TOKENS_PER_RUN = 256;
const OUTPUTS: Record<Kind, [output: string, slots: string]> = {
  sentence: ["default", "slots"],
  context: ["context_encoding", "context_slots"],
  response: ["response_encoding", "response_slots"],
  similarity: ["similarity_encoding", "similarity_slots"],
};
const KINDS = Object.keys(OUTPUTS) as Kind[];

export class Encoder {
  private constructor(
    private readonly session: ort.InferenceSession,
    readonly tokenizer: Tokenizer,
  ) {}

  /** Open a model. `wasm` is the WebAssembly of ONNX Runtime, if it has been loaded already. */
  static async open(
    model: ArrayBuffer,
    data: TokenizerData,
    wasm?: ArrayBuffer,
  ): Promise<Encoder> {
    if (wasm) ort.env.wasm.wasmBinary = wasm;
    // Several threads need cross-origin isolation headers, which static file servers seldom send.
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = "error";
    const session = await ort.InferenceSession.create(new Uint8Array(model), {
      executionProviders: ["wasm"],
      enableMemPattern: false, // it would keep a memory plan for every input shape
    });
    return new Encoder(session, new Tokenizer(data));
  }

  /** Return a vector for each text. All kinds but `sentence` have length 1.
   *
   * If the model has no similarity vectors, return sentence vectors instead. */
  async encode(texts: string[], kind: Kind): Promise<Float32Array[]> {
    const ids = texts.map((text) => this.tokenizer.ids(text));
    const order = ids.map((_, i) => i).sort((a, b) => ids[a].length - ids[b].length);
    const vectors = new Array<Float32Array>(texts.length);
    for (let start = 0; start < order.length; ) {
      let end = start + 1;
      while (
        end < order.length &&
        Math.max(ids[order[end]].length, 1) * (end + 1 - start) <= TOKENS_PER_RUN
      )
        end++;
      const batch = order.slice(start, end);
      const found = await this.run(
        batch.map((i) => ids[i]),
        kind,
      );
      batch.forEach((i, row) => (vectors[i] = found[row]));
      start = end;
    }
    return vectors;
  }

  /** Encode a batch of texts, one per row. Padding costs little if their lengths are similar. */
  private async run(ids: number[][], kind: Kind): Promise<Float32Array[]> {
    const rows = ids.length;
    const tokens = Math.max(1, ...ids.map((each) => each.length));
    const tokenIds = new Int32Array(rows * tokens);
    const positions = new Int32Array(rows * tokens);
    const segments = new Int32Array(rows * tokens);
    const pooling = new Float32Array(rows * tokens);
    ids.forEach((own, row) => {
      own.forEach((id, place) => {
        const at = row * tokens + place;
        tokenIds[at] = id;
        positions[at] = place;
        segments[at] = 1;
        pooling[at] = 1 / Math.sqrt(own.length);
      });
    });
    const none = new ort.Tensor("int32", new Int32Array(0), [0]);
    const has = (one: Kind) => this.session.outputNames.includes(OUTPUTS[one][0]);
    const [output, slots] = OUTPUTS[has(kind) ? kind : "sentence"];
    const feeds: Record<string, ort.Tensor> = {
      token_ids: new ort.Tensor("int32", tokenIds, [rows, tokens]),
      positions: new ort.Tensor("int32", positions, [rows, tokens]),
      segment_ids: new ort.Tensor("int32", segments, [rows, tokens]),
      pooling: new ort.Tensor("float32", pooling, [rows, 1, tokens]),
      ...Object.fromEntries(KINDS.filter(has).map((one) => [OUTPUTS[one][1], none])),
      [slots]: new ort.Tensor("int32", Int32Array.from({ length: rows }, (_, i) => i), [rows]),
    };
    const result = (await this.session.run(feeds, [output]))[output];
    const data = result.data as Float32Array;
    const dim = result.dims[1];
    return Array.from({ length: rows }, (_, row) => data.slice(row * dim, (row + 1) * dim));
  }
}

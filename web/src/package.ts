/** The package for web pages and Node. */

import { Encoder } from "./encoder.js";
import { unpacked } from "./gzip.js";

export { Encoder, type Kind } from "./encoder.js";

/** Opens the encoder of this package, or the one in another folder.
 *
 * The folder holds `model.onnx.gz` and `tokenizer.json.gz`; its address ends with a slash. */
export async function load(folder: string | URL = new URL("./", import.meta.url)): Promise<Encoder> {
  const [model, tokenizer] = await Promise.all([
    contentOf(new URL("model.onnx.gz", folder)),
    contentOf(new URL("tokenizer.json.gz", folder)),
  ]);
  return Encoder.open(model, JSON.parse(new TextDecoder().decode(tokenizer)));
}

async function contentOf(file: URL): Promise<ArrayBuffer> {
  if (file.protocol === "file:") {
    const files = "node:fs/promises"; // a name that bundlers for browsers do not look for
    const { readFile } = await import(/* @vite-ignore */ files);
    return unpacked(new Blob([await readFile(file)]).stream());
  }
  const reply = await fetch(file);
  if (!reply.ok || !reply.body) throw new Error(`${file}: ${reply.status} ${reply.statusText}`);
  return unpacked(reply.body);
}

/** Entry point of the package for web pages and Node. */

import { Encoder } from "./encoder.js";
import { unpacked } from "./gzip.js";

export { Encoder, type Kind } from "./encoder.js";

/** Load the encoder in this package, or in another folder.
 *
 * The folder must contain `model.onnx.gz` and `tokenizer.json.gz`. Its address must end with a slash. In a
 * web page, it may be relative to the page. In Node, it must begin with `file:`, `http:` or `https:`. */
export async function load(folder: string | URL = new URL("./", import.meta.url)): Promise<Encoder> {
  const base = new URL(folder, globalThis.document?.baseURI ?? globalThis.location?.href);
  const [model, tokenizer] = await Promise.all([
    contentOf(new URL("model.onnx.gz", base)),
    contentOf(new URL("tokenizer.json.gz", base)),
  ]);
  return Encoder.open(model, JSON.parse(new TextDecoder().decode(tokenizer)));
}

async function contentOf(file: URL): Promise<ArrayBuffer> {
  if (file.protocol === "file:") {
    const files = "node:fs/promises"; // in a variable, so that bundlers for browsers do not try to resolve it
    const { readFile } = await import(/* @vite-ignore */ files);
    return unpacked(new Blob([await readFile(file)]).stream());
  }
  const reply = await fetch(file);
  if (!reply.ok || !reply.body) throw new Error(`${file}: ${reply.status} ${reply.statusText}`);
  return unpacked(reply.body);
}

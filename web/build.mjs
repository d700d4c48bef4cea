// Write the page, its scripts and the compressed WebAssembly of ONNX Runtime to dist/. Run
// scripts/web_assets.py first, which writes the model and the tokenizer.

import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFile, mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { gzipSync } from "node:zlib";

const out = new URL("dist/", import.meta.url);
await mkdir(out, { recursive: true });
await build({
  entryPoints: ["src/main.ts", "src/worker.ts", "src/arithmetic.ts"],
  outdir: "dist",
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  absWorkingDir: new URL(".", import.meta.url).pathname,
});
// The tests import these modules in Node.
await build({
  entryPoints: ["src/tokenizer.ts", "src/vectors.ts", "src/encoder.ts"],
  outdir: "build",
  outExtension: { ".js": ".mjs" },
  bundle: true,
  external: ["onnxruntime-web"],
  format: "esm",
  platform: "node",
  absWorkingDir: new URL(".", import.meta.url).pathname,
});
for (const name of ["index.html", "style.css"])
  await copyFile(new URL(name, import.meta.url), new URL(name, out));
const runtime = new URL("node_modules/onnxruntime-web/dist/", import.meta.url);
const wasm = await readFile(new URL("ort-wasm-simd-threaded.wasm", runtime));
await writeFile(new URL("ort.wasm.gz", out), gzipSync(wasm, { level: 9 }));
const files = {};
for (const name of (await readdir(out)).filter((each) => each.endsWith(".gz"))) {
  const content = await readFile(new URL(name, out));
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 16);
  files[name] = { bytes: content.length, hash };
}
await writeFile(new URL("assets.json", out), JSON.stringify({ files }));

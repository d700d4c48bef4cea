/** Decompression of files. */

/** Return the content of a stream, decompressed if it is gzip.
 *
 * If the server declared the compression, the browser has already decompressed it. */
export async function unpacked(stream: ReadableStream<Uint8Array>): Promise<ArrayBuffer> {
  const reader = stream.getReader();
  const { value: first } = await reader.read();
  const whole = new ReadableStream<Uint8Array>({
    start(controller) {
      if (first) controller.enqueue(first);
    },
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) controller.close();
      else controller.enqueue(value);
    },
  });
  const isPacked = first?.[0] === 0x1f && first[1] === 0x8b;
  const gunzip = () =>
    new DecompressionStream("gzip") as unknown as TransformStream<Uint8Array, Uint8Array>;
  const plain = isPacked ? whole.pipeThrough(gunzip()) : whole;
  return new Response(plain as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer();
}

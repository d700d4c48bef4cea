/** Clients of the two workers: one for vectors, with a cache, and one for arithmetic on vectors. */

import type { Compared, Done, Task } from "./arithmetic";
import type { Kind } from "./encoder";
import type { Share } from "./vectors";
import type { Ask, Told } from "./worker";

const KEPT = 5000;

export class Client {
  private readonly worker = new Worker("worker.js", { type: "module" });
  private readonly waiting = new Map<number, (told: Told) => void>();
  private readonly kept = new Map<string, Float32Array>();
  private next = 0;
  private setReady = () => {};
  /** Resolves when the model has been loaded. */
  readonly ready = new Promise<void>((resolve) => (this.setReady = resolve));

  constructor(onTold: (told: Told) => void) {
    this.worker.onmessage = (event: MessageEvent<Told>) => {
      const told = event.data;
      if ("id" in told && told.id !== undefined) {
        this.waiting.get(told.id)?.(told);
        this.waiting.delete(told.id);
      } else onTold(told);
      if (told.type === "ready") this.setReady();
    };
    this.worker.onerror = (event) => onTold({ type: "failed", message: event.message });
  }

  /** Return a vector for each text, and the model's milliseconds: 0 if all vectors were cached. */
  async encode(texts: string[], kind: Kind): Promise<[Float32Array[], number]> {
    const key = (text: string) => `${kind} ${text}`;
    const vectorOf = new Map(texts.map((text) => [text, this.kept.get(key(text))]));
    const unknown = [...vectorOf.keys()].filter((text) => !vectorOf.get(text));
    let milliseconds = 0;
    if (unknown.length) {
      const told = await this.ask(unknown, kind);
      if (told.type !== "vectors") throw new Error(told.type === "failed" ? told.message : told.type);
      milliseconds = told.milliseconds;
      if (this.kept.size > KEPT) this.kept.clear();
      unknown.forEach((text, i) => {
        vectorOf.set(text, told.vectors[i]);
        this.kept.set(key(text), told.vectors[i]);
      });
    }
    return [texts.map((text) => vectorOf.get(text)!), milliseconds];
  }

  private ask(texts: string[], kind: Kind): Promise<Told> {
    const id = this.next++;
    const ask: Ask = { id, texts, kind };
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.worker.postMessage(ask);
    });
  }
}

export class Arithmetic {
  private readonly worker = new Worker("arithmetic.js", { type: "module" });
  private readonly waiting = new Map<number, (done: Done) => void>();
  private next = 0;

  constructor() {
    this.worker.onmessage = (event: MessageEvent<Done>) => {
      this.waiting.get(event.data.id)?.(event.data);
      this.waiting.delete(event.data.id);
    };
  }

  /** Return the result of a task, and its computation time in milliseconds. */
  run(task: Task & { type: "intents" }): Promise<[Share[], number]>;
  run(task: Task & { type: "compare" }): Promise<[Compared, number]>;
  async run(task: Task): Promise<[Share[] | Compared, number]> {
    const id = this.next++;
    const done = await new Promise<Done>((resolve) => {
      this.waiting.set(id, resolve);
      this.worker.postMessage({ ...task, id });
    });
    if (done.type === "failed") throw new Error(done.message);
    return [done.result, done.milliseconds];
  }
}

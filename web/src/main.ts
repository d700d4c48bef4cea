/** The page: three panels with forms. The results are updated while the user types. */

import { Arithmetic, Client } from "./client";
import { dot } from "./vectors";
import type { Told } from "./worker";

const DELAY = 60; // milliseconds without input before results are computed
const QUIET = 1000; // milliseconds without a new result before a screen reader reads it out
const LEAST_SIMILARITY = 0.7;
const MOST_PAIRS = 100;

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

const client = new Client(onTold);
const arithmetic = new Arithmetic();

function onTold(told: Told): void {
  const status = element("status");
  if (told.type === "loading") {
    const mb = (bytes: number) => (bytes / 1e6).toFixed(0);
    status.textContent = `Loading the model: ${mb(told.loaded)} of ${mb(told.total)} MB`;
    element<HTMLProgressElement>("progress").value = told.loaded / told.total;
  } else if (told.type === "ready") {
    element("loading").dataset.state = "ready";
    status.textContent = `Ready after ${(told.milliseconds / 1000).toFixed(1)} s. Nothing you type leaves this page.`;
  } else if (told.type === "failed") {
    element("loading").dataset.state = "failed";
    status.textContent = `The model could not be loaded: ${told.message}. Reload the page to try again.`;
  }
}

function lines(id: string): string[] {
  return element<HTMLTextAreaElement>(id)
    .value.split("\n")
    .map((line) => line.trim())
    .filter((line) => line);
}

/** Call `show` after changes to the fields. Quick changes share a call, and calls never overlap. */
function follow(fields: string[], output: string, show: () => Promise<void>): void {
  let timer = 0;
  let running = false;
  let again = false;
  const run = async () => {
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      await show();
    } catch (error) {
      element(output).textContent = String(error);
    }
    running = false;
    if (again) {
      again = false;
      void run();
    }
  };
  for (const field of fields)
    element(field).addEventListener("input", () => {
      clearTimeout(timer);
      timer = window.setTimeout(run, DELAY);
    });
  void run();
}

const sayings = new Map<string, number>();

/** Have screen readers read out a summary of a result, but not the list, once typing has stopped. */
function say(id: string, text: string): void {
  clearTimeout(sayings.get(id));
  sayings.set(id, window.setTimeout(() => (element(id).textContent = text), QUIET));
}

function row(...cells: (string | HTMLElement)[]): HTMLElement {
  const made = document.createElement("li");
  for (const cell of cells)
    made.append(typeof cell === "string" ? Object.assign(document.createElement("span"), { textContent: cell }) : cell);
  return made;
}

/** Return a bar whose width is a share from 0 to 1, with a text inside. */
function bar(share: number, text: string): HTMLElement {
  const made = document.createElement("span");
  made.className = "bar";
  made.style.setProperty("--share", String(Math.max(0, Math.min(1, share))));
  made.textContent = text;
  return made;
}

function took(id: string, milliseconds: number): void {
  element(id).textContent = `${milliseconds.toFixed(0)} ms`;
}

async function rank(): Promise<void> {
  const context = element<HTMLInputElement>("context").value.trim();
  const responses = lines("responses");
  await client.ready;
  const [answers] = await client.encode(responses, "response");
  const [[vector], milliseconds] = await client.encode([context], "context");
  const scored = responses
    .map((text, i) => ({ text, score: dot(vector, answers[i]) }))
    .sort((a, b) => b.score - a.score);
  element("ranking").replaceChildren(
    ...scored.map(({ text, score }) => row(bar(score, score.toFixed(2)), text)),
  );
  took("rank-time", milliseconds);
  say("rank-said", scored.length ? `Best: ${scored[0].text}, ${scored[0].score.toFixed(2)}` : "");
}

async function classify(): Promise<void> {
  const examples = lines("examples")
    .map((line) => line.split(":"))
    .filter((parts) => parts.length > 1)
    .map(([label, ...rest]) => ({ label: label.trim(), text: rest.join(":").trim() }))
    .filter(({ label, text }) => label && text);
  const tests = lines("tests");
  const output = element("intents");
  if (new Set(examples.map((each) => each.label)).size < 2) {
    output.replaceChildren(row("Write examples for two intents or more, as “intent: example”."));
    return;
  }
  await client.ready;
  const [own, ownTime] = await client.encode(
    examples.map((each) => each.text),
    "sentence",
  );
  const [found, foundTime] = await client.encode(tests, "sentence");
  const [best, time] = await arithmetic.run({
    type: "intents",
    examples: own,
    labels: examples.map((each) => each.label),
    tests: found,
  });
  output.replaceChildren(
    ...best.map(({ label, probability }, i) => {
      const name = Object.assign(document.createElement("strong"), { textContent: label });
      return row(bar(probability, `${(100 * probability).toFixed(0)} %`), name, tests[i]);
    }),
  );
  took("intent-time", ownTime + foundTime + time);
  say("intent-said", best.map(({ label }, i) => `${tests[i]}: ${label}`).join(". "));
}

async function compare(): Promise<void> {
  const questions = lines("questions");
  const [pairs, map, legend] = ["pairs", "map", "legend"].map((id) => element(id));
  if (questions.length < 3) {
    pairs.replaceChildren(row("Write three questions or more, one per line."));
    map.replaceChildren();
    legend.replaceChildren();
    return;
  }
  await client.ready;
  const [vectors, modelTime] = await client.encode(questions, "similarity");
  const [found, time] = await arithmetic.run({
    type: "compare",
    vectors,
    least: LEAST_SIMILARITY,
    most: MOST_PAIRS,
  });
  const numbered = questions.map((text, i) => `${i + 1}. ${text}`);
  const shown = found.pairs.map(({ first, second, similarity }) =>
    row(bar(similarity, similarity.toFixed(2)), `${numbered[first]}\n${numbered[second]}`),
  );
  if (found.total > shown.length) shown.push(row(`The first ${shown.length} of ${found.total} pairs.`));
  pairs.replaceChildren(...(shown.length ? shown : [row(`No two questions have a similarity of ${LEAST_SIMILARITY} or more.`)]));
  map.replaceChildren(drawn(found.places, new Set(found.near)));
  legend.replaceChildren(...numbered.map((text) => row(text)));
  took("compare-time", modelTime + time);
  say("compare-said", `${found.total} pairs of ${questions.length} questions are similar.`);
}

const SVG = "http://www.w3.org/2000/svg";

/** Draw a map of numbered points. The legend below the map shows their texts. */
function drawn(places: [number, number][], near: Set<number>): SVGElement {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "-115 -85 230 170");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `A map of ${places.length} questions; similar questions are close together`);
  places.forEach(([x, y], i) => {
    const point = document.createElementNS(SVG, "g");
    point.setAttribute("transform", `translate(${(100 * x).toFixed(1)} ${(-70 * y).toFixed(1)})`);
    point.setAttribute("class", near.has(i) ? "point near" : "point");
    const circle = document.createElementNS(SVG, "circle");
    circle.setAttribute("r", "6");
    const number = document.createElementNS(SVG, "text");
    number.textContent = String(i + 1);
    point.append(circle, number);
    picture.append(point);
  });
  return picture;
}

follow(["context", "responses"], "ranking", rank);
follow(["examples", "tests"], "intents", classify);
follow(["questions"], "pairs", compare);

// Test the page in Debian's chromium, or in the browser at the path in CHROMIUM.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const PYTHON = process.env.PYTHON ?? "python3";
const PICTURES = process.env.PICTURES; // a folder for screenshots
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
const MAX_BYTES = 40e6;

let server, browser, profile, address, page;

before(async () => {
  server = spawn(PYTHON, ["-m", "convert_tf", "demo", "--port=0"], { stdio: ["ignore", "pipe", "inherit"] });
  address = await new Promise((resolve, reject) => {
    let said = "";
    server.stdout.on("data", (piece) => {
      const found = (said += piece).match(/http:\S+(?= )/);
      if (found) resolve(found[0]);
    });
    server.on("exit", () => reject(new Error("convert-tf demo ended")));
  });
  profile = mkdtempSync(join(tmpdir(), "chromium-"));
  browser = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: FLAGS,
    viewport: { width: 1280, height: 900 },
  });
  page = await browser.newPage();
});

after(async () => {
  await browser?.close();
  server?.kill();
  if (profile) rmSync(profile, { recursive: true, force: true });
});

const first = (id) => page.locator(`#${id} li`).first();

test("the page loads less than 40 MB, and ranks responses", async () => {
  let bytes = 0;
  const session = await browser.newCDPSession(page);
  await session.send("Network.enable");
  session.on("Network.loadingFinished", (event) => (bytes += event.encodedDataLength));
  const failed = [];
  const asked = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("pageerror", (error) => failed.push(String(error)));
  await page.goto(address);
  await page.locator("#loading[data-state=ready]").waitFor({ timeout: 120_000 });
  await first("ranking").getByText("You can change it under Settings").waitFor({ timeout: 60_000 });
  const assets = await (await fetch(`${address}/assets.json`)).json();
  const large = Object.values(assets.files).reduce((sum, each) => sum + each.bytes, 0);
  console.log(`${(large / 1e6).toFixed(1)} MB of model and runtime`);
  assert.ok(large + 2e6 < MAX_BYTES);
  assert.ok(bytes < MAX_BYTES);
  assert.deepEqual(failed, []);
  // Files are requested by checksum, so that a cache never mixes versions.
  for (const [name, { hash }] of Object.entries(assets.files))
    assert.ok(asked.includes(`${address}/${name}?v=${hash}`), asked.join(" "));
});

test("typing updates the ranking at once", async () => {
  await page.fill("#context", "What did you have for dinner?");
  await first("ranking").getByText("I had pasta with my sister.").waitFor({ timeout: 20_000 });
  assert.match(await page.textContent("#rank-time"), /^\d+ ms$/);
  await page.fill("#responses", "Only one.");
  await first("ranking").getByText("Only one.").waitFor({ timeout: 20_000 });
  assert.equal(await page.locator("#ranking li").count(), 1);
});

test("intents follow the examples", async () => {
  const said = page.locator("#intents li");
  await said.nth(3).waitFor({ timeout: 20_000 });
  assert.deepEqual(await said.locator("strong").allTextContents(), ["delivery", "login", "refund", "delivery"]);
  await page.fill("#examples", "a: hello");
  await first("intents").getByText("two intents or more").waitFor();
});

test("duplicates are found and drawn", async () => {
  const pairs = page.locator("#pairs li");
  await pairs.first().waitFor();
  const texts = await pairs.allTextContents();
  assert.ok(texts.some((text) => text.includes("delete my account") && text.includes("close my account")), texts.join("; "));
  assert.equal(await page.locator("#map .point").count(), 12);
  // The legend explains the numbers on the map and in the pairs.
  const legend = await page.locator("#legend li").allTextContents();
  assert.equal(legend.length, 12);
  assert.equal(legend[9], "10. How do I delete my account?");
  assert.ok(texts.some((text) => text.includes(legend[9]) && text.includes("12. How can I close")), texts.join("; "));
});

test("screen readers get a sentence about each change, not whole lists", async () => {
  assert.equal(await page.locator("ol[aria-live]").count(), 0);
  await page.getByRole("status").getByText("Best: Only one.").waitFor({ state: "attached", timeout: 20_000 });
  await page.locator("#compare-said").getByText(/^\d+ pairs of 12 questions/).waitFor({ state: "attached" });
});

test("of many similar pairs, a hundred are shown and all are counted", async () => {
  const before = await page.inputValue("#questions");
  const many = Array.from({ length: 40 }, (_, i) => `How do I reset my password ${"now ".repeat(i % 4)}?`);
  await page.fill("#questions", many.join("\n"));
  await page.locator("#pairs").getByText("The first 100 of ").waitFor({ timeout: 60_000 });
  assert.equal(await page.locator("#pairs li").count(), 101);
  await page.fill("#questions", before);
  await page.locator("#legend li").nth(11).waitFor({ timeout: 20_000 });
});

test("servers may declare the compression", async () => {
  const folder = new URL("../dist/", import.meta.url);
  const types = { html: "text/html", js: "text/javascript", css: "text/css", json: "application/json" };
  const declaring = createServer((request, reply) => {
    const name = request.url.split("?")[0].slice(1) || "index.html";
    const type = types[name.split(".").pop()];
    reply.writeHead(200, type ? { "Content-Type": type } : { "Content-Encoding": "gzip" });
    reply.end(readFileSync(new URL(name, folder)));
  });
  await new Promise((resolve) => declaring.listen(0, "127.0.0.1", resolve));
  const other = await browser.newPage();
  await other.goto(`http://127.0.0.1:${declaring.address().port}/`);
  await other.locator("#loading[data-state]").waitFor({ timeout: 120_000 });
  assert.match(await other.textContent("#status"), /^Ready/);
  await other.close();
  declaring.closeAllConnections();
  declaring.close();
});

test("the keyboard reaches everything", async () => {
  await page.reload();
  await page.locator("#loading[data-state=ready]").waitFor({ timeout: 60_000 });
  const reached = [];
  for (let i = 0; i < 8; i++) {
    await page.keyboard.press("Tab");
    reached.push(await page.evaluate(() => document.activeElement.id || document.activeElement.hash));
  }
  assert.deepEqual(reached, ["#rank", "#intent", "#compare", "context", "responses", "examples", "tests", "questions"]);
});

test("with a warm cache, the first result appears within five seconds", async () => {
  const started = Date.now();
  await page.reload();
  await first("ranking").getByText("You can change it").waitFor({ timeout: 60_000 });
  const seconds = (Date.now() - started) / 1000;
  console.log(`${seconds.toFixed(1)} s`);
  if (!process.env.BUSY) assert.ok(seconds < 5, `${seconds} s`);
});

for (const scheme of ["light", "dark"])
  test(`${scheme}, on a desk and on a phone, nothing is cut off`, async () => {
    await page.emulateMedia({ colorScheme: scheme });
    for (const [name, width, height] of [["desk", 1280, 900], ["phone", 360, 740]]) {
      await page.setViewportSize({ width, height });
      await page.locator("#map .point").first().waitFor({ timeout: 60_000 });
      await page.locator("#intents li").nth(3).waitFor({ timeout: 60_000 });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(overflow <= 0, `${name} ${overflow}`);
      const [text, back] = await page.evaluate(() =>
        ["color", "backgroundColor"].map((key) => getComputedStyle(document.body)[key].match(/\d+/g).slice(0, 3).map(Number)));
      const light = (rgb) => rgb.reduce((a, b) => a + b, 0) / 3;
      assert.equal(light(text) < light(back), scheme === "light");
      if (PICTURES) await picture(name, scheme);
    }
  });

/** Write the screenshots for docs/. */
async function picture(name, scheme) {
  const path = (file) => join(PICTURES, file);
  if (name === "desk" && scheme === "light") await page.screenshot({ path: path("page.png"), fullPage: true });
  if (name === "desk" && scheme === "dark") await page.locator("#intent").screenshot({ path: path("page_intents_dark.png") });
  if (name === "phone" && scheme === "light") await page.screenshot({ path: path("page_phone.png") });
}

/** A port of the subword tokenizer in convert_tf/text/plain_tokenizer.py, with the same token ids. */

/** The data of a model's tokenizer, which scripts/web_assets.py writes. */
export interface TokenizerData {
  subwords: string[];
  numOovBuckets: number;
  maxTokens: number;
  /** The tables in convert_tf/text/unicode_tables.json, unchanged. */
  marks: string;
  lower: string;
  cased: string;
  ignorable: string;
  spaces: string;
  unseen: string;
  joiners: string;
  pictures: string;
  hyphens: string;
  alike: string;
  composing: string;
  combining: string;
}

const WORD_START = "\ufe4f";
const SIGMA = "Σ";
const FINAL_SIGMA = "ς";
const ESCAPES: [string, string][] = [
  ["\ufe4e", "\ufe4e\ufe4e"],
  ["\ufe4f", "\ufe4e\ufe4d"],
  ["\0", "\ufe4e\ufe4c"],
];
/** Folding keeps this many combining marks in a row, because NFC takes quadratic time to sort them. */
const MOST_MARKS = 30;
const CACHED_RUNS = 100_000;
const MASK = (1n << 64n) - 1n;
const K0 = 0xc3a5c85c97cb3127n;
const K2 = 0x9ae16a3b2f90404fn;

function numbers(table: string): number[] {
  return table.split(" ").map((each) => parseInt(each, 36));
}

/** Return the start and end of each range in a table of gaps and lengths. */
function rangesOf(table: string): [number, number][] {
  const found: [number, number][] = [];
  const all = numbers(table);
  let end = 0;
  for (let i = 0; i < all.length; i += 2) {
    const start = end + all[i];
    end = start + all[i + 1];
    found.push([start, end]);
  }
  return found;
}

/** Return the code points in a table of gaps and lengths. */
function codePoints(table: string): Set<number> {
  const found = new Set<number>();
  for (const [start, end] of rangesOf(table))
    for (let point = start; point < end; point++) found.add(point);
  return found;
}

/** Return the characters of a table as a regular expression class, without its brackets. */
function characterClass(table: string): string {
  const hex = (point: number) => `\\u{${point.toString(16)}}`;
  return rangesOf(table)
    .map(([start, end]) => `${hex(start)}-${hex(end - 1)}`)
    .join("");
}

/** Like `fold` in convert_tf/text/characters.py: texts that look the same become the same text. */
function folding(data: TokenizerData): (text: string) => string {
  const [spaces, unseen, joiners, pictures, hyphens, alike, composing, combining] = [
    data.spaces, data.unseen, data.joiners, data.pictures, data.hyphens, data.alike, data.composing,
    data.combining,
  ].map(characterClass);
  const mayChange = new RegExp(`[${unseen}${joiners}${hyphens}${alike}${composing}]|(?! )[${spaces}]|  |^ | $`, "u");
  const [space, nothing, hyphen] = [spaces, unseen, hyphens].map((each) => new RegExp(`[${each}]`, "gu"));
  const lostJoiners = new RegExp(`(?<![${pictures}${joiners}])[${joiners}]+`, "gu");
  const others = new RegExp(`[${alike}]+`, "gu");
  const longRun = new RegExp(`[${combining}]{${MOST_MARKS + 1},}`, "gu");
  const cut = (run: string) => [...run].slice(0, MOST_MARKS).join("");
  return (text) =>
    !mayChange.test(text)
      ? text
      : text
          .replace(space, " ")
          .replace(nothing, "")
          .replace(lostJoiners, "")
          .replace(hyphen, "-")
          .replace(longRun, cut)
          .normalize("NFC")
          .replace(others, (run) => run.normalize("NFKC"))
          .normalize("NFC")
          .replace(longRun, cut)
          .replace(/ +/g, " ")
          .replace(/^ | $/g, "");
}

function lowerCasings(table: string): Map<string, string> {
  const mapped = new Map<string, string>();
  const all = numbers(table);
  let end = 0;
  for (let i = 0; i < all.length; i += 4) {
    const [gap, number, step, difference] = all.slice(i, i + 4);
    const start = end + gap;
    for (let k = 0; k < number; k++) {
      const point = start + k * step;
      mapped.set(String.fromCodePoint(point), String.fromCodePoint(point + difference));
    }
    end = start + (number - 1) * step + 1;
  }
  return mapped;
}

/** Return FarmHash's Fingerprint64 of a character (1 to 4 bytes), modulo the number of buckets. */
export function bucketOf(character: string, buckets: number): number {
  const bytes = new TextEncoder().encode(character);
  const length = bytes.length;
  let hash: bigint;
  if (length === 4) {
    const word = BigInt(new DataView(bytes.buffer).getUint32(0, true));
    const mul = (K2 + 8n) & MASK;
    let a = (((4n + (word << 3n)) ^ word) * mul) & MASK;
    a ^= a >> 47n;
    let b = ((word ^ a) * mul) & MASK;
    b ^= b >> 47n;
    hash = (b * mul) & MASK;
  } else {
    const y = BigInt(bytes[0] + (bytes[length >> 1] << 8));
    const z = BigInt(length + (bytes[length - 1] << 2));
    const mixed = ((y * K2) & MASK) ^ ((z * K0) & MASK);
    hash = ((mixed ^ (mixed >> 47n)) * K2) & MASK;
  }
  return Number(hash % BigInt(buckets));
}

/** Return the characters of a text. A lone surrogate becomes a replacement character, as in Python. */
function charactersOf(text: string): string[] {
  const found: string[] = [];
  for (const character of text) {
    const point = character.codePointAt(0)!;
    if (point >= 0xd800 && point <= 0xdfff) found.push("\ufffd");
    else found.push(character);
  }
  return found;
}

export class Tokenizer {
  private readonly idOf = new Map<string, number>();
  private readonly longest: number;
  private readonly normal: Map<string, string>;
  private readonly cased: Set<number>;
  private readonly ignorable: Set<number>;
  private readonly marks: Set<number>;
  private readonly runs = new Map<string, number[]>();
  private readonly outerSpace: number[];
  private readonly fold: (text: string) => string;

  constructor(private readonly data: TokenizerData) {
    data.subwords.forEach((subword, id) => this.idOf.set(subword, id));
    this.longest = Math.max(...data.subwords.map((subword) => [...subword].length));
    this.normal = lowerCasings(data.lower);
    this.normal.set("\u0130", "i\u0307");
    this.normal.set(SIGMA, "σ");
    for (const [character, escaped] of ESCAPES) this.normal.set(character, escaped);
    this.cased = codePoints(data.cased).add(SIGMA.codePointAt(0)!);
    this.ignorable = codePoints(data.ignorable);
    this.marks = codePoints(data.marks);
    this.outerSpace = this.runIds([" "]);
    this.fold = folding(data);
  }

  /** Fold a text and return its token ids, cut to the number of tokens that the network reads. */
  ids(text: string): number[] {
    const limit = this.data.maxTokens;
    // A token covers at most `longest` characters and the space before it, so more characters are not
    // needed. Two more tokens are read, because the cut may change the last two.
    const folded = this.fold(charactersOf(text).join(""));
    const characters = [...folded].slice(0, (this.longest + 1) * (limit + 2));
    const runs = this.cut(this.normalized(characters));
    const ids: number[] = [];
    if (runs.length && runs[0] === " ") ids.push(...this.outerSpace);
    for (const run of runs) {
      if (run !== " ") for (const id of this.cachedIds(run)) ids.push(id);
      if (ids.length >= limit) return ids.slice(0, limit);
    }
    if (runs.length > 1 && runs[runs.length - 1] === " ") ids.push(...this.outerSpace);
    return ids.slice(0, limit);
  }

  private normalized(characters: string[]): string[] {
    let given = characters;
    if (given.includes(SIGMA)) given = this.withFinalSigmas(given);
    const found: string[] = [];
    for (const character of given) {
      const other = this.normal.get(character);
      if (other === undefined) found.push(character);
      else found.push(...other);
    }
    return found;
  }

  /** Replace capital sigmas at the end of a word by small final sigmas, as Unicode defines. */
  private withFinalSigmas(characters: string[]): string[] {
    const text = characters.flatMap((each) => (each === "\u0130" ? ["i", "\u0307"] : [each]));
    return text.map((character, place) =>
      character === SIGMA && this.besideLetter(text, place, -1) && !this.besideLetter(text, place, 1)
        ? FINAL_SIGMA
        : character,
    );
  }

  private besideLetter(text: string[], start: number, step: number): boolean {
    let place = start + step;
    while (place >= 0 && place < text.length && this.ignorable.has(text[place].codePointAt(0)!))
      place += step;
    return place >= 0 && place < text.length && this.cased.has(text[place].codePointAt(0)!);
  }

  /** Split a text into runs of marks (punctuation and separators) and runs of other characters. */
  private cut(characters: string[]): string[] {
    const runs: string[] = [];
    let start = 0;
    for (let place = 1; place <= characters.length; place++) {
      if (place === characters.length || this.isMark(characters[place]) !== this.isMark(characters[start])) {
        runs.push(characters.slice(start, place).join(""));
        start = place;
      }
    }
    return runs;
  }

  private isMark(character: string): boolean {
    return this.marks.has(character.codePointAt(0)!);
  }

  private cachedIds(run: string): number[] {
    let ids = this.runs.get(run);
    if (ids === undefined) {
      ids = this.runIds([...run]);
      if (this.runs.size >= CACHED_RUNS) this.runs.clear();
      this.runs.set(run, ids);
    }
    return ids;
  }

  /** Return the token ids of a run. Each token is the longest subword that matches. */
  private runIds(run: string[]): number[] {
    const text = [WORD_START, ...run];
    const ids: number[] = [];
    let start = 0;
    while (start < text.length) {
      let end = Math.min(text.length, start + this.longest);
      let found: number | undefined;
      for (; end > start; end--) {
        found = this.idOf.get(text.slice(start, end).join(""));
        if (found !== undefined) break;
      }
      if (found !== undefined) {
        ids.push(found);
        start = end;
      } else {
        // The word-start marker alone is not a token.
        if (start) {
          const bucket = bucketOf(text[start], this.data.numOovBuckets);
          ids.push(this.data.subwords.length + bucket);
        }
        start += 1;
      }
    }
    return ids;
  }
}

// "What did you see?": what cases declare (messages, exceptions, kernels) against the text, then its words in pagefind.
const SHOWN = 8;
const MOST_WORDS = 60;
// What counts how much was tried on the half of tests/data/match/reports.jsonl that is not frozen.
const IDENTIFIER = 1.6;
const PROJECT = 8;
const base = new URL("..", import.meta.url);
const form = document.getElementById("cb-search");

if (form) {
  const query = form.elements.q;
  const shown = document.getElementById("cb-results");
  let loaded;
  const load = () => (loaded ??= Promise.all([
    fetch(new URL("signatures.json", base)).then((answer) => answer.json()),
    import(new URL("pagefind/pagefind.js", base)).then(async (found) => (await found.init(), found)),
  ]));
  const run = async () => {
    const text = query.value.trim();
    if (!text) return shown.replaceChildren();
    shown.replaceChildren(line("p", "Looking ..."));
    try {
      const [cases, pagefind] = await load();
      show(shown, await rank(text, cases, pagefind), cases.length);
    } catch (error) {
      shown.replaceChildren(line("p", `The search could not be loaded: it needs a web server (${error.message}).`));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    history.replaceState(null, "", query.value ? `?q=${encodeURIComponent(query.value.slice(0, 1500))}` : location.pathname);
    run();
  });
  query.addEventListener("focus", () => load().catch(() => (loaded = undefined)), { once: true });
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    query.value = asked;
    run();
  }
}

async function rank(text, cases, pagefind) {
  const found = new Map(cases.map((one) => [one.id, { one, score: 0, fits: [], words: [] }]));
  const declared = [
    ["messages", (each) => pattern(each)?.test(text), 60, "its message"],
    ["errors", (each) => new RegExp(`\\b${escaped(each.split(".").pop())}\\b`).test(text), 8, "its error"],
    ["kernels", (each) => text.includes(each), 20, "its kernel"],
  ];
  for (const [what, holds, weight, name] of declared) {
    const fitting = cases.filter((one) => one[what].some(holds));
    for (const one of fitting) {
      const entry = found.get(one.id);
      entry.score += weight / fitting.length; // what many cases declare tells little
      entry.fits.push(name);
      entry.likely ||= what === "messages" && fitting.length <= 2;
    }
  }
  const named = text.toLowerCase().replaceAll("_", "-");
  for (const entry of found.values()) {
    if (named.includes(entry.one.project.toLowerCase().split("/").pop())) entry.project = PROJECT;
  }
  const pages = new Map();
  for (const [word, results] of await Promise.all(words(text).map(async (word) => [word, await lookUp(word, pagefind)]))) {
    if (results.length > cases.length / 2) continue;
    const weight = Math.log(cases.length / results.length) * (/_|[a-z][A-Z]/.test(word) ? IDENTIFIER : 1);
    for (const result of results) {
      const page = pages.get(result.id) ?? { result, score: 0, words: [] };
      page.score += weight * Math.sqrt(result.score);
      page.words.push(word);
      pages.set(result.id, page);
    }
  }
  const best = [...pages.values()].sort((a, b) => b.score - a.score).slice(0, 3 * SHOWN);
  await Promise.all(best.map(async (page) => {
    const id = (await page.result.data()).url.match(/cases\/([^/]+)\//)?.[1];
    const entry = found.get(id);
    if (entry) Object.assign(entry, { score: entry.score + page.score, words: page.words });
  }));
  const fitting = [...found.values()].filter((entry) => entry.score > 0);
  for (const entry of fitting) entry.score += entry.project ?? 0;
  return fitting.sort((a, b) => b.score - a.score).slice(0, SHOWN);
}

// The pages with this very word. Without quotes pagefind also finds words that begin like it; with them it gives no scores.
async function lookUp(word, pagefind) {
  const [same, scored] = await Promise.all([pagefind.search(`"${word}"`), pagefind.search(word)]);
  const ids = new Set(same.results.map((result) => result.id));
  return scored.results.filter((result) => ids.has(result.id));
}

// Words that can tell cases apart: no addresses, no numbers alone, of a path its last part.
function words(text) {
  const plain = text.replace(/0x[0-9a-f]+/gi, " ").replace(/[\w.-]*\/(?=\S)/g, " ");
  const every = plain.match(/[A-Za-z_][A-Za-z0-9_]{2,}/g) ?? [];
  return [...new Set(every.map((word) => word.replace(/^_+|_+$/g, "")))].filter((word) => word.length > 2).slice(0, MOST_WORDS);
}

// A manifest's patterns are Python's; the few that a browser can't read are left to the words.
function pattern(text) {
  try {
    return new RegExp(text.replace(/^\(\?[a-z]+\)/, "").replaceAll("(?P<", "(?<"), "im");
  } catch {
    return null;
  }
}

function escaped(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function show(shown, ranked, all) {
  if (!ranked.length) {
    return shown.replaceChildren(line("p", `None of the ${all} cases fits: nothing that one declares, and too few of its words.`));
  }
  const list = document.createElement("ol");
  for (const { one, fits, words: said, likely } of ranked) {
    const item = document.createElement("li");
    const link = line("a", one.title);
    link.href = new URL(`cases/${one.id}/index.html`, base);
    const why = [fits.length ? `fits ${fits.join(", ")}` : "", said.length ? `words: ${said.slice(0, 8).join(", ")}` : ""];
    item.append(link, likely ? line("span", " likely", "cb-likely") : "", document.createElement("br"));
    if (one.symptom) item.append(line("code", one.symptom, "cb-symptom"));
    item.append(line("p", [one.id, one.failure, one.project, ...why].filter(Boolean).join(" · "), "cb-why"));
    list.append(item);
  }
  const told = ranked[0].likely ? "The first is likely yours; read how to tell." : "None is certain: read how to tell on each page.";
  shown.replaceChildren(line("p", told), list);
}

function line(tag, text, class_) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (class_) made.className = class_;
  return made;
}

// Orders the results of the search: guides come before references, and pages about the project and
// its measurements last. Sphinx puts this before its own search, which then uses this object.
const GUIDES = [
  "start", "pytorch", "backend", "cpp", "devices", "choose", "cluster", "doctor", "checkpoints",
  "trace", "plan", "survive-a-loss", "troubleshooting", "metrics", "configuration",
];
const REFERENCES = ["python-api", "cpp-api", "how-it-works", "bits", "scale"];
const LAST = [
  "changelog", "checks", "moved", "contributing", "first-change", "dependencies", "hardening",
  "add-an-algorithm", "tests-python", "tests-device", "commands",
];

// Returns the words of the query, as the search page got them.
const queryWords = () => {
  const query = new URLSearchParams(window.location.search).get("q") || "";
  return query.toLowerCase().split(/[^a-z0-9_]+/).filter((word) => word.length > 2);
};
// True iff the query looks like an option: silence-limit, --silence-limit, SLUICE_SILENCE_LIMIT.
const isOption = () => {
  const query = new URLSearchParams(window.location.search).get("q") || "";
  return /^(--)?[a-z]+(-[a-z]+)+$|^SLUICE_\w+$/.test(query.trim());
};

var Scorer = {
  score: (result) => {
    const [page, title, , , score, , kind] = result;
    const words = queryWords();
    const named = words.filter((word) => title.toLowerCase().includes(word)).length;
    let weight = score + (words.length ? (10 * named) / words.length : 0);
    if (isOption() && page === "configuration") weight += 15;
    if (kind === "object" || page === "troubleshooting") return weight + 10;
    if (GUIDES.includes(page)) return weight + 8;
    if (REFERENCES.includes(page)) return weight + 6;
    if (LAST.includes(page) || page.startsWith("measurements/")) return weight - 8;
    return weight;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Columns that sort, figures that enlarge, folds that are open on paper. Without it all still reads.
const key = (row, column) => {
  const cell = row.cells[column];
  const text = (cell.dataset.v ?? cell.textContent).replace(/,/g, "").replace("−", "-");
  return text === "" ? NaN : Number.isNaN(parseFloat(text)) ? text : parseFloat(text);
};
const order = (a, b) =>
  typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));

for (const head of document.querySelectorAll("table.kv-sortable thead th")) {
  const button = document.createElement("button");
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = head.closest("table").tBodies[0];
    const rows = [...body.rows].map((row) => [key(row, head.cellIndex), row]);
    const empty = (pair) => Number.isNaN(pair[0]); // missing values stay last either way
    rows.sort((a, b) => empty(a) - empty(b) || (up ? 1 : -1) * order(a[0], b[0]));
    body.append(...rows.map((pair) => pair[1]));
  });
}

const large = document.createElement("dialog");
large.className = "kv-large";
large.addEventListener("click", () => large.close());
for (const link of document.querySelectorAll(".kv-panels a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    if (!large.isConnected) document.body.append(large);
    large.replaceChildren(link.querySelector("img").cloneNode());
    large.setAttribute("aria-label", large.firstChild.alt);
    large.showModal();
  });
}

const folds = () => document.querySelectorAll("details.kv-all:not([open])");
const opened = new Set();
addEventListener("beforeprint", () => folds().forEach((fold) => opened.add(fold) && (fold.open = true)));
addEventListener("afterprint", () => opened.forEach((fold) => (fold.open = false)));

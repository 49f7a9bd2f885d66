"use strict";
// Opens what a link leads to, copies replay lines, and filters targets. The page reads without it.
function reveal() {
  const place = document.getElementById(location.hash.slice(1));
  if (!place) return;
  for (let part = place; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
    if (part.hidden) part.hidden = false;
  }
  place.scrollIntoView();
  place.setAttribute("tabindex", "-1");
  place.focus({ preventScroll: true });
}
function select(node) {
  const range = document.createRange();
  range.selectNodeContents(node);
  const chosen = getSelection();
  chosen.removeAllRanges();
  chosen.addRange(range);
}
function copy(button) {
  const code = button.parentElement.querySelector("code");
  const said = document.getElementById("said");
  const tell = (word) => {
    button.textContent = word;
    said.textContent = word + ": " + code.textContent;
  };
  const by_hand = () => {
    select(code);
    let done = false;
    try { done = document.execCommand("copy"); } catch { done = false; }
    tell(done ? "Copied" : "Selected");
  };
  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => tell("Copied"), by_hand);
  else by_hand();
}
function filter(text) {
  const wanted = text.toLowerCase();
  let shown = 0;
  for (const part of document.querySelectorAll("[data-target]")) {
    part.hidden = !part.dataset.target.toLowerCase().includes(wanted);
    shown += !part.hidden && part.tagName === "DETAILS";
  }
  document.getElementById("said").textContent = shown + " targets shown";
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (button) copy(button);
});
document.addEventListener("input", (event) => {
  if (event.target.id === "filter") filter(event.target.value);
});
addEventListener("hashchange", reveal);
for (const part of document.querySelectorAll(".scripted")) part.hidden = false;
reveal();

"use strict";
/* One frame at a time, where scripts run; in print all frames stay. */
document.querySelectorAll(".kvt:not(.stepping)").forEach((drawing) => {
  const frames = [...drawing.querySelectorAll("li")];
  const [before, after] = drawing.querySelectorAll("button");
  const where = drawing.querySelector("nav span");
  let now = 0;
  const show = (frame) => {
    now = frame;
    frames.forEach((item, place) => item.classList.toggle("now", place === now));
    before.disabled = now === 0;
    after.disabled = now === frames.length - 1;
    where.textContent = `request ${now + 1} of ${frames.length}`;
  };
  before.addEventListener("click", () => show(now - 1));
  after.addEventListener("click", () => show(now + 1));
  drawing.classList.add("stepping");
  show(0);
});

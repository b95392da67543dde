"use strict";
for (const figure of document.querySelectorAll("figure:has(svg.queues)")) {
  const run = JSON.parse(figure.querySelector("script.run").textContent);
  const slider = figure.querySelector(".moment"), told = figure.querySelector("output"), button = figure.querySelector(".play");
  const ports = Object.entries(run.codes).map(([number, code]) => {
    const [queue, pause] = figure.querySelectorAll(`[data-port="${number}"] path`);
    return {queue, pause, code};
  });
  const show = () => {
    const moment = Number(slider.value);
    for (const {queue, pause, code} of ports) {
      const digit = parseInt(code[moment], 16);
      queue.setAttribute("stroke", run.colours[digit % 8]);
      pause.setAttribute("visibility", digit > 7 ? "visible" : "hidden");
    }
    told.textContent = run.words[moment];
  };
  let timer = null;
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "\u25b6"; };
  button.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (slider.value === slider.max) slider.value = 0;
    button.textContent = "\u23f8";
    timer = setInterval(() => { slider.value = Number(slider.value) + 1; show(); if (slider.value === slider.max) stop(); }, 80);
  });
  slider.addEventListener("input", () => { stop(); show(); });
  const firstPause = Math.max(0, run.words.findIndex((_, moment) => ports.some(port => port.code[moment] >= "8")));
  slider.value = Number(location.hash.slice(1)) || firstPause;
  show();
}

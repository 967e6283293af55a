"use strict";
// A button on every block of code that copies it, without prompts and printed answers.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    if (block.closest(".highlight-text, .highlight-none, .highlight-default")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      const text = block.querySelector("pre").textContent;
      const prompts = text.split("\n").filter((line) => /^(\$|>>>|\.\.\.) /.test(line));
      const code = prompts.length ? prompts.map((line) => line.replace(/^(\$|>>>|\.\.\.) /, "")).join("\n") : text;
      await navigator.clipboard.writeText(code.trimEnd());
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.appendChild(button);
  }
});

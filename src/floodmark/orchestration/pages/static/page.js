// What every page does with a script: it copies, follows links out of Airflow's frame, reads itself again, and sends decisions.
"use strict";
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const add = (place, name, properties) => place.appendChild(Object.assign(document.createElement(name), properties));

  // Airflow shows the page in a frame that may not change the window's address: its own document follows the link.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-airflow]");
    if (!link || window.parent === window || event.ctrlKey || event.metaKey) return;
    const outer = window.parent.document.createElement("a");
    outer.href = link.href;
    outer.click();
    event.preventDefault();
  });

  // Browsers have no clipboard for pages over plain HTTP, but copy what is selected.
  const copy = async (text) => {
    if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
    const area = add(document.body, "textarea", { value: text, readOnly: true });
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("not copied");
  };
  const addCopy = (place, label, text) => {
    const button = add(place, "button", { type: "button", className: "small", textContent: label });
    button.addEventListener("click", async () => {
      try {
        await copy(text());
        button.textContent = "Copied";
      } catch (error) {
        button.textContent = "Not copied: select it";
      }
    });
  };
  all("code.copy").forEach((code) => {
    const place = document.createElement("span");
    (code.closest("pre") ?? code).after(place);
    addCopy(place, "Copy", () => code.textContent);
  });
  all("[data-address]").forEach((place) => addCopy(place, "Copy it", () => location.href));

  // A page of the ledger is read again, unless a decision is being written.
  const seconds = Number(document.body.dataset.refresh);
  if (seconds) setInterval(() => { if (!document.querySelector("details.act[open]")) location.reload(); }, 1000 * seconds);

  const reason = async (answer) => {
    const document_ = await answer.json().catch(() => ({}));
    const detail = typeof document_.detail === "string" ? document_.detail : JSON.stringify(document_.detail ?? "");
    if (answer.status === 401) return "Your session has ended: log in to Airflow again.";
    return `Not done (${answer.status}): ${detail}`;
  };
  const send = async (form, output) => {
    const body = JSON.parse(form.dataset.body);
    all("input").filter((each) => each.form === form).forEach((each) => {
      // A moment of such a field has no zone.
      body[each.name] = each.type === "datetime-local" ? `${each.value}Z` : each.value;
    });
    const answer = await fetch(form.dataset.url, {
      method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    if (!answer.ok) {
      output.textContent = await reason(answer);
      return false;
    }
    const found = await answer.json();
    output.textContent = found.done ?? "Airflow has started it: ";
    if (!found.done) {
      const run = found.dag_run_id ? `/runs/${encodeURIComponent(found.dag_run_id)}` : "";
      const link = add(output, "a", { href: form.dataset.dag + run, textContent: found.dag_run_id ?? "its runs" });
      link.dataset.airflow = "";
    }
    return true;
  };
  all("details.act").forEach((details) => { details.hidden = false; });
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-url]");
    if (!form) return;
    event.preventDefault();
    const output = form.querySelector("output");
    const button = form.querySelector("button");
    button.disabled = true;
    output.textContent = "Sending…";
    let isDone = false;
    try {
      isDone = await send(form, output);
    } catch (error) {
      output.textContent = "Airflow's server did not answer. See the state of the pipeline before you try again.";
    }
    // What is done once is not done again by a second click.
    button.disabled = isDone;
  });
})();

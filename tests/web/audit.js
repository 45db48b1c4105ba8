// What a page must have so that everybody can use it; returns what is wrong, in words.
(() => {
  const faults = [];
  const all = (selector) => [...document.querySelectorAll(selector)];
  const isShown = (element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const describe = (element) => element.outerHTML.slice(0, 120);

  // --- Structure ------------------------------------------------------------------------------------------------

  if (all("h1").length !== 1) faults.push(`${all("h1").length} elements h1`);
  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) faults.push(`h${level} is followed by ${describe(heading)}`);
    level = next;
  }
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title) faults.push("no title");
  for (const landmark of ["header", "main", "nav"]) if (!document.querySelector(landmark)) faults.push(`no ${landmark}`);
  const ids = all("[id]").map(({ id }) => id);
  for (const id of ids) if (ids.filter((each) => each === id).length > 1) faults.push(`two elements have the id ${id}`);
  for (const list of all("ul, ol")) {
    for (const child of list.children) if (child.tagName !== "LI") faults.push(`in a list: ${describe(child)}`);
  }
  for (const cell of all("th")) if (!cell.scope) faults.push(`no scope: ${describe(cell)}`);

  // --- Names ----------------------------------------------------------------------------------------------------

  const nameOf = (element) =>
    (element.getAttribute("aria-label") || element.labels?.[0]?.innerText || element.innerText || element.getAttribute("alt") || "").trim();
  for (const control of all("a[href], button, input, select, summary")) {
    if (control.closest("[aria-hidden=true]")) {
      if (control.tabIndex >= 0) faults.push(`can be reached, but is hidden: ${describe(control)}`);
    } else if (!nameOf(control)) faults.push(`no name: ${describe(control)}`);
  }
  for (const image of all("img")) if (!image.hasAttribute("alt")) faults.push(`no alt: ${describe(image)}`);
  for (const element of all("[aria-labelledby]")) {
    if (!document.getElementById(element.getAttribute("aria-labelledby"))) faults.push(`names nothing: ${describe(element)}`);
  }

  // --- Contrast -------------------------------------------------------------------------------------------------

  const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const [red, green, blue, alpha] = rgba(getComputedStyle(each).backgroundColor);
      if (alpha > 200) return [red, green, blue];
    }
    return [255, 255, 255];
  };
  const luminance = (colour) => {
    const [red, green, blue] = colour.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const measured = new Set();
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || measured.has(element) || !isShown(element) || element.closest(":disabled, option, .hidden-text, .skip")) continue;
    measured.add(element);
    const style = getComputedStyle(element);
    const [light, dark] = [luminance(rgba(style.color).slice(0, 3)), luminance(ground(element))].sort((one, other) => other - one);
    const contrast = (light + 0.05) / (dark + 0.05);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (isLarge ? 3 : 4.5)) faults.push(`contrast ${contrast.toFixed(2)}: ${describe(element)}`);
  }
  return faults;
})();

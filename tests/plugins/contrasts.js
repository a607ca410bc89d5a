// Each thing that can be seen on the page: its contrast to what is behind it, as WCAG 2.2 computes it, and the least that it should be.
() => {
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((one, at) => one * a + under[at] * (1 - a));
  const behind = (element) => {
    const chain = [];
    for (let one = element; one; one = one.parentElement) chain.unshift(getComputedStyle(one).backgroundColor);
    return chain.reduce((under, colour) => over(rgba(colour), under), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((one) => one / 255).map((one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
    return (bright + 0.05) / (dark + 0.05);
  };
  const found = [];
  const see = (element, what, colour, under, least) => {
    const ratio = contrast(over(rgba(colour), under), under);
    found.push({ what: `${what} ${element.tagName}.${element.getAttribute("class") ?? ""} ${element.textContent.trim().slice(0, 30)}`, ratio, least });
  };
  const seen = (element) => element.getClientRects().length && getComputedStyle(element).visibility === "visible";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest("svg, script") || !seen(element)) continue;
    const style = getComputedStyle(element);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    see(element, "text", style.color, behind(element), large ? 3 : 4.5);
  }
  for (const element of document.querySelectorAll("input:not([type=hidden]), textarea, button, .button")) {
    if (!seen(element)) continue;
    const style = getComputedStyle(element), under = behind(element.parentElement);
    const filled = contrast(behind(element), under);
    if (filled < 3) see(element, "border", style.borderTopColor, under, 3);
    if (element.placeholder) see(element, "placeholder", getComputedStyle(element, "::placeholder").color, behind(element), 4.5);
  }
  for (const element of document.querySelectorAll("svg rect")) see(element, "drawing", getComputedStyle(element).fill, behind(element.closest("svg")), 3);
  for (const element of document.querySelectorAll(".legend span")) see(element, "legend", getComputedStyle(element).backgroundColor, behind(element.parentElement), 3);
  for (const element of document.querySelectorAll(".card")) see(element, "edge", getComputedStyle(element).borderLeftColor, behind(element.parentElement), 3);
  return found;
}

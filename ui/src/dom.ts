/* SPDX-License-Identifier: Apache-2.0 */
/* Elements without a framework. Text is always text: nothing here parses HTML. */

export type Child = Node | string | number | null | undefined | false;
export type Attributes = { [name: string]: unknown };

/** h("button", {class: "x", onclick: f, disabled: true}, "text"): an element. false and null attributes stay out. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function")
      element.addEventListener(name.slice(2), value as EventListener);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((c): c is Node | string | number => c !== null && c !== undefined && c !== false)
    .map((c) => (typeof c === "number" ? String(c) : c)));
  return element;
}

/** Sets an element's text, and touches the page only when it is another. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setWidth(element: HTMLElement, width: string): void {
  if (element.style.width !== width) element.style.width = width;
}

export function setAttribute(element: Element, name: string, value: string | null): void {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

const ROWS_A_FRAME = 60;

/** Makes @parent's children the rows of @items, in their order; rows of items that stay are kept. */
export class Rows<T, R extends Element> {
  private readonly rows = new Map<string, R>();
  private frame = 0;

  constructor(private readonly parent: Element, private readonly key: (item: T) => string,
    private readonly make: (item: T) => R, private readonly update: (row: R, item: T) => void) {}

  /** New rows at once, the others as many in a frame as do not hold it up. */
  show(items: readonly T[]): void {
    const wanted = new Set(items.map(this.key));
    for (const [key, row] of this.rows)
      if (!wanted.has(key)) {
        row.remove();
        this.rows.delete(key);
      }
    const later: [R, T][] = [];
    let at: Element | null = this.parent.firstElementChild, n = 0;
    for (const item of items) {
      const key = this.key(item);
      let row = this.rows.get(key);
      const fresh = !row;
      if (!row) {
        row = this.make(item);
        this.rows.set(key, row);
      }
      if (fresh || n++ < ROWS_A_FRAME) this.update(row, item);
      else later.push([row, item]);
      if (row === at) at = at.nextElementSibling;
      else this.parent.insertBefore(row, at);
    }
    cancelAnimationFrame(this.frame);
    if (later.length) this.updateLater(later);
  }

  private updateLater(rows: [R, T][]): void {
    this.frame = requestAnimationFrame(() => {
      for (const [row, item] of rows.slice(0, ROWS_A_FRAME)) this.update(row, item);
      if (rows.length > ROWS_A_FRAME) this.updateLater(rows.slice(ROWS_A_FRAME));
    });
  }

  get(key: string): R | undefined {
    return this.rows.get(key);
  }
}

/** Calls @f once in the next frame, however often it is asked to. */
export function inNextFrame(f: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      f();
    });
  };
}

/** A canvas that is as sharp as the screen, and is drawn anew when its size or the colours change. */
export class Picture {
  readonly canvas: HTMLCanvasElement;
  readonly draw: () => void;
  width = 0;
  height = 0;

  constructor(attributes: Attributes, private readonly paint: (c: CanvasRenderingContext2D, width: number, height: number) => void) {
    this.canvas = h("canvas", attributes);
    this.draw = inNextFrame(() => this.drawNow());
    new ResizeObserver(this.draw).observe(this.canvas);
    document.addEventListener("themechange", this.draw);
  }

  /** Sets the height that the picture needs; its width is the page's. */
  setHeight(height: number): void {
    if (this.canvas.style.height !== `${height}px`) this.canvas.style.height = `${height}px`;
  }

  private drawNow(): void {
    const scale = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    if (this.width === 0 || this.height === 0) return;
    const width = Math.round(this.width * scale), height = Math.round(this.height * scale);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const c = this.canvas.getContext("2d");
    if (!c) return;
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, this.width, this.height);
    this.paint(c, this.width, this.height);
  }
}

/** The value of a colour of style.css, in the theme that is shown. */
export function colourOf(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Puts @nodes into @parent. The keyboard stays where it is. */
export function replaceIn(parent: Element, ...nodes: HTMLElement[]): void {
  const here = parent.contains(document.activeElement);
  parent.replaceChildren(...nodes);
  if (here) nodes[0]?.focus();
}

/** Says @text to screen readers, once. */
export function announce(text: string): void {
  const place = document.getElementById("announce");
  if (place) place.textContent = text;
}

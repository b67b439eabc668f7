/* SPDX-License-Identifier: Apache-2.0 */
/* Curves over time by uPlot, in the page's colours. */
import uPlot from "uplot";
import { colourOf } from "./dom";
import { mark, moment } from "./format";

export interface Curve {
  label: string;
  colour: string; // a name of style.css
  stepped?: boolean;
  dash?: number[];
  width?: number;
  fill?: boolean;
  value: (v: number | null) => string;
  hidden?: boolean; // in the legend: bounds of a band
}

export interface ChartOptions {
  height: number;
  label: string; // for screen readers
  curves: Curve[];
  band?: [number, number, string]; // between these two curves, in this colour
  range?: (low: number, high: number) => [number, number];
  onZoom?: (from: number, to: number) => void;
  axis?: (v: number) => string;
  plain?: string; // x is no time, but this
  left?: () => number; // width of the axis of values
  under?: (plot: uPlot) => void; // paints behind the curves
}

/** A chart that follows its element's width and the theme. */
export class Chart {
  private plot: uPlot | null = null;
  private data: uPlot.AlignedData;
  private window: [number, number] | null = null;

  constructor(readonly element: HTMLElement, private readonly options: ChartOptions) {
    this.data = [[], ...options.curves.map(() => [])] as uPlot.AlignedData;
    element.classList.add("chart");
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", options.label);
    new ResizeObserver(() => {
      if (this.element.clientWidth === 0) return;
      if (!this.plot) this.make();
      else if (this.plot.width !== this.element.clientWidth)
        this.plot.setSize({ width: this.element.clientWidth, height: options.height });
    }).observe(element);
    document.addEventListener("themechange", () => {
      if (this.plot) this.make();
    });
  }

  show(data: (number | null)[][], window?: [number, number]): void {
    this.data = data as uPlot.AlignedData;
    this.window = window ?? null;
    if (!this.plot) return;
    this.plot.batch((plot: uPlot) => {
      plot.setData(this.data, !window);
      if (window) plot.setScale("x", { min: window[0], max: window[1] });
    });
  }

  /** After a change of what the options' functions return. */
  remake(): void {
    if (this.plot) this.make();
  }

  private series(): uPlot.Series[] {
    return [
      { label: this.options.plain ?? "Time", value: (_, v) => (v === null ? "" : this.options.plain ? String(v) : moment(v)) },
      ...this.options.curves.map((curve): uPlot.Series => ({
        label: curve.label,
        stroke: curve.hidden ? "transparent" : colourOf(curve.colour),
        width: curve.width ?? 1.6,
        ...(curve.dash ? { dash: curve.dash } : {}),
        ...(curve.stepped ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
        ...(curve.fill ? { fill: `${colourOf(curve.colour)}2e` } : {}),
        points: { show: false },
        value: (_, v) => curve.value(v ?? null),
      })),
    ];
  }

  private make(): void {
    const { options } = this, faint = colourOf("faint"), line = colourOf("line");
    const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui, sans-serif" };
    this.plot?.destroy();
    this.plot = new uPlot({
      width: this.element.clientWidth, height: options.height,
      legend: { live: true },
      padding: [8, options.left ? 0 : null, 0, 0],
      cursor: { drag: { x: options.onZoom !== undefined, y: false, setScale: false }, points: { size: 6 } },
      scales: { x: { time: !options.plain }, y: { range: (_, low, high) => (options.range ?? ((a, b) => [Math.min(0, a), b * 1.08 || 1]))(low ?? 0, high ?? 1) } },
      axes: [{ ...axis, values: (_, at) => at.map((v) => (options.plain ? String(v) : mark(v, at.length > 1 ? at[1]! - at[0]! : 60))) },
        { ...axis, size: () => options.left?.() ?? 52, values: (_, at) => at.map((v) => (options.axis ? options.axis(v) : String(v))) }],
      series: this.series(),
      ...(options.band ? { bands: [{ series: [options.band[0] + 1, options.band[1] + 1] as [number, number], fill: `${colourOf(options.band[2])}40` }] } : {}),
      hooks: { setSelect: [(plot) => this.zoomed(plot)], ...(options.under ? { drawAxes: [(plot: uPlot) => options.under?.(plot)] } : {}) },
    }, this.data, this.element);
    if (this.window) this.plot.setScale("x", { min: this.window[0], max: this.window[1] });
  }

  private zoomed(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < 4) return;
    this.options.onZoom?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }
}

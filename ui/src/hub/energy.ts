/* SPDX-License-Identifier: Apache-2.0 */
/* View Energy of the organization: the tree of areas, and beside it the one that is chosen. */
import { h } from "../dom";
import type { Page } from "../frame";
import { AreaView } from "./area";
import { HubLive } from "./live";
import { Tree } from "./tree";

/** An address that somebody has mistyped names no area. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

export class AreasPage implements Page {
  readonly element: HTMLElement;
  readonly title = "Energy";
  private readonly tree: Tree;
  private readonly area: AreaView;
  private readonly none = h("p", { class: "none", hidden: true }, "The hub has no area yet. List each area with its unit under ", h("code", {}, "areas:"), " in the power policy; ", h("code", {}, "tide-hub token"), " lets a machine enrol as that unit.");

  constructor(private readonly live: HubLive) {
    this.area = new AreaView(live);
    this.tree = new Tree(live, (path, settled) => {
      history.replaceState(null, "", `#energy/${path}`);
      this.area.choose(path, settled);
    });
    this.element = h("div", { class: "page energy areas" }, this.none, this.tree.element, this.area.element);
  }

  show(): void {
    if (this.element.hidden) return;
    this.none.hidden = this.live.areas.length > 0 || !this.live.looked;
    this.tree.show();
    const asked = location.hash.startsWith("#energy/") ? decoded(location.hash.slice("#energy/".length)) : "";
    const wanted = this.live.byPath.has(asked) ? asked : this.tree.chosen ?? this.live.areas[0]?.area;
    if (wanted && wanted !== this.tree.chosen) {
      this.tree.reveal(wanted);
      this.area.choose(wanted, false);
    }
    this.area.show();
  }

  focusFilter(): void {
    this.tree.search.focus();
  }
}

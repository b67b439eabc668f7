// SPDX-License-Identifier: Apache-2.0
// A tree of the kernel's powercap class in a folder, whose counter moves on as a machine's would.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const MOVE_MS = 20;

export class PowerTree {
  uj = 1e6;
  last = performance.now();

  /** A psys zone that draws @watts, and @more(seconds) besides. */
  constructor(root, watts, more = () => 0) {
    this.folder = join(root, "sys/class/powercap/intel-rapl:1");
    mkdirSync(this.folder, { recursive: true });
    writeFileSync(join(this.folder, "name"), "psys\n");
    writeFileSync(join(this.folder, "max_energy_range_uj"), "65532610987\n");
    this.begun = this.last;
    this.write("w");
    this.timer = setInterval(() => {
      const now = performance.now();
      this.uj += (watts + more((now - this.begun) / 1000)) * 1e3 * (now - this.last);
      this.last = now;
      this.write("r+"); // in place and in one write: never half a number
    }, MOVE_MS);
  }

  write(flag) {
    writeFileSync(join(this.folder, "energy_uj"), `${String(Math.floor(this.uj)).padStart(20, "0")}\n`, { flag });
  }

  end() {
    clearInterval(this.timer);
  }
}

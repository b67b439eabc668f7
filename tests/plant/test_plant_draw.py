#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The drawn parameters are those of plant.h, within its bounds, and the same ones each time."""
import pathlib
import re
import unittest

import plant_draw

HEADER = (pathlib.Path(__file__).parent / "plant.h").read_text()
BOUNDS = {name: (int(least), int(most)) for name, least, most in
          re.findall(r"^    X\((\w+), (\d+), (\d+)\)", HEADER, re.M)}
SEEDS = [str(n) for n in range(300)]


class Draws(unittest.TestCase):
    def test_every_draw_has_the_parameters_of_the_header_in_its_order_and_bounds(self):
        self.assertEqual(len(BOUNDS), 20)
        for kind in plant_draw.RANGES:
            for cores in (1, 2, 8, 64):
                for seed in SEEDS:
                    params = plant_draw.draw(seed, cores, kind)
                    self.assertEqual(list(params), list(BOUNDS))
                    for name, (least, most) in BOUNDS.items():
                        self.assertTrue(least <= params[name] <= most, (kind, cores, seed, name))
                    self.assertLess(params["package_idle_uw"] + params["dram_idle_uw"], params["idle_uw"])

    def test_a_seed_always_gives_the_same_plant(self):
        """Measured rows name seeds: what these mean must not change."""
        params = plant_draw.draw("threadtide", 2, "server")
        self.assertEqual((params["idle_uw"], params["core_uw"], params["turbo_permille"]),
                         (47250114, 6302766, 1060))
        self.assertEqual(plant_draw.seeds("0123abc", 2), ["8018282a4d4ee62e", "bf072d774775d272"])
        self.assertEqual(plant_draw.noise_seed("threadtide"), 1177497267341363838)

    def test_the_whole_range_is_drawn_from(self):
        for name, ((least, most), *_) in plant_draw.RANGES["desktop"].items():
            drawn = [plant_draw.number(seed, name, least, most) for seed in SEEDS]
            self.assertLess(min(drawn), least + (most - least) / 8, name)
            self.assertGreater(max(drawn), most - (most - least) / 8, name)
        self.assertEqual({plant_draw.range_of(seed) for seed in SEEDS}, set(plant_draw.RANGES))


if __name__ == "__main__":
    unittest.main()

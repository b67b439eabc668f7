/* SPDX-License-Identifier: Apache-2.0 */
/* The command `tide-power broker`: an area's own broker. Called by main.c. */
#pragma once

int broker_main(int argc, char **argv);

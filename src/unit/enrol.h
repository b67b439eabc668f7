/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide-power enrol https://HUB TOKEN`: makes a key that never leaves the machine, has the hub sign
 * its certificate, and writes what the unit needs to be one of the hub's. The hub is who the token
 * says: the token holds the fingerprint of its authority. Called by main.c; one thread.
 */
#pragma once

/* argv[0] is "enrol". Returns the exit status. */
int enrol_main(int argc, char **argv);

/* SPDX-License-Identifier: Apache-2.0 */
/* A library that does nothing: the agent's cost is compared with it. */
int constructor_ran;

__attribute__((constructor)) static void run(void)
{
    constructor_ran = 1;
}

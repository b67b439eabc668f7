/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent's cost is compared with: a library that does nothing. */
int constructor_ran;

__attribute__((constructor)) static void run(void)
{
    constructor_ran = 1;
}

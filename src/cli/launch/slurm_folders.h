/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folders of daemons of a user's allocations, "slurm-JOB": nobody else removes them. Used by
 * tide-slurm, as the user.
 */
#pragma once

#define SLURM_FOLDER "slurm-"

/*
 * Removes from the folder @parent_fd those whose daemon was started more than a day ago and does
 * not run any more. Failures are left for the next time.
 */
void slurm_folders_remove_old(int parent_fd);

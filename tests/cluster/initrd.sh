#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# The first program in the machine: modules for the disk, then what the kernel's command line names.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done </modules/order
until [ -b /dev/vda ]; do $b usleep 10000; done
$b mount -t ext4 -o noatime /dev/vda /root
$b mount --move /dev /root/dev
for word in $($b cat /proc/cmdline); do
    case $word in tide.init=*) next=${word#tide.init=} ;; esac
done
$b umount /proc
exec $b switch_root /root "$next"

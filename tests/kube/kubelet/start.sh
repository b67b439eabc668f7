#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# In the machine of test_kubelet.py: containerd and kubelet, joined to the control plane outside. Every
# change of a container's cpu.max is printed as "cpu.max POD-UID VALUE". Ends when the machine is ended.
here=$(dirname "$0")
say() { echo "kubelet: $* ($(cut -d' ' -f1 /proc/uptime) s)"; }

modprobe -a virtio_net br_netfilter veth bridge overlay
interface=$(ls /sys/class/net | grep -v lo | head -1)
ip address add 10.0.2.15/24 dev "$interface"
ip link set "$interface" up
ip route add default via 10.0.2.2
echo vm >/proc/sys/kernel/hostname
echo "127.0.0.1 localhost vm" >/etc/hosts
: >/etc/resolv.conf
cat /proc/sys/kernel/random/uuid | tr -d - >/etc/machine-id
mkdir -p /etc/cni/net.d /etc/containerd /var/lib/kubelet /var/lib/containerd /var/log
cp "$here/containerd.toml" /etc/containerd/config.toml
cp "$here/pods.conflist" /etc/cni/net.d/

containerd >/var/log/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.2; done
say "containerd serves"
ctr -n k8s.io images import "$here/image.tar"

"$here/kubelet" --kubeconfig="$here/kubeconfig" --config="$here/kubelet.yaml" --hostname-override=vm \
    --node-ip=10.0.2.15 --v=2 >/var/log/kubelet.log 2>&1 &
kubelet=$!
say "kubelet starts"
declare -A seen
shopt -s nullglob
while kill -0 $kubelet; do
    for file in /sys/fs/cgroup/kubepods/{,burstable/,besteffort/}pod*/*/cpu.max; do
        pod=${file#*/pod}
        read -r value 2>/dev/null <"$file" || continue
        if [ "${seen[$file]:-}" != "$value" ]; then
            seen[$file]=$value
            echo "cpu.max ${pod%%/*} $value"
        fi
    done
    sleep 1
done
say "kubelet has ended"
grep -E '^[EF]' /var/log/kubelet.log | tail -20
tail -5 /var/log/containerd.log
exit 1

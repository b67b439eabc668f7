#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: start.sh NETWORK (the first three numbers of an address)
# In the machine of test_kubelet.py: containerd and kubelet, joined to the control plane outside; pods are on
# the network outside, too. Every change of a container's cpu.max is printed as "cpu.max POD-UID VALUE", of its
# cpuset as "cpuset POD-UID VALUE", of a job of tided as "job NAME TARGET ACTIVE CORES REASON", and what kubelet logs
# as an error as "kubelet.log LINE".
# Ends when the machine is ended.
here=$(dirname "$0") network=$1
say() { echo "kubelet: $* ($(cut -d' ' -f1 /proc/uptime) s)"; }

modprobe -a virtio_net br_netfilter veth bridge overlay
interface=$(ls /sys/class/net | grep -v lo | head -1)
ip link add cni0 type bridge
ip link set "$interface" up master cni0
ip link set cni0 up
ip address add "$network.192/24" dev cni0
ip route add default via "$network.1"
echo vm >/proc/sys/kernel/hostname
echo "127.0.0.1 localhost vm" >/etc/hosts
: >/etc/resolv.conf
cat /proc/sys/kernel/random/uuid | tr -d - >/etc/machine-id
rm -rf /etc/cni/net.d  # podman brings a network of its own, and the first name counts
mkdir -p /etc/cni/net.d /etc/containerd /var/lib/kubelet /var/lib/containerd /var/log
if [ -d "$here/containerd2" ]; then
    PATH=$here/containerd2:$PATH
    cp "$here/containerd2.toml" /etc/containerd/config.toml
else
    cp "$here/containerd.toml" /etc/containerd/config.toml
fi
sed "s/NETWORK/$network/g" "$here/pods.conflist" >/etc/cni/net.d/pods.conflist

containerd >/var/log/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.2; done
say "containerd serves"
for image in "$here"/*.tar; do ctr -n k8s.io images import "$image"; done

"$here/kubelet" --kubeconfig="$here/kubeconfig" --config="$here/kubelet.yaml" --hostname-override=vm \
    --node-ip="$network.192" --v=2 >/var/log/kubelet.log 2>&1 &
kubelet=$!
say "kubelet starts"
tail -F -n +1 /var/log/kubelet.log 2>/dev/null | sed -un 's/^[EF]/kubelet.log &/p' &
while sleep 1; do
    [ ! -S /run/tide/api.sock ] || "$here/jobs.py" 2>/dev/null
done | (
    declare -A told
    while read -r name rest; do
        [ "${told[$name]:-}" = "$rest" ] || { told[$name]=$rest && echo "job $name $rest"; }
    done
) &
while sleep 5; do
    for log in /var/log/pods/*/*/*.log; do
        [ -e "$log.told" ] || { : >"$log.told"; tail -F -n +1 "$log" 2>/dev/null | sed -u "s,^,$(basename "$(dirname "$log")").log ," & }
    done
done &
declare -A seen
shopt -s nullglob
while kill -0 $kubelet; do
    for file in /sys/fs/cgroup/kubepods/{,burstable/,besteffort/}pod*/*/{cpu.max,cpuset.cpus.effective}; do
        pod=${file#*/pod}
        read -r value 2>/dev/null <"$file" || continue
        if [ "${seen[$file]:-}" != "$value" ]; then
            seen[$file]=$value
            case $file in
            *cpu.max) echo "cpu.max ${pod%%/*} $value" ;;
            *) echo "cpuset ${pod%%/*} $value" ;;
            esac
        fi
    done
    sleep 1
done
say "kubelet has ended"
grep -E '^[EF]' /var/log/kubelet.log | tail -20
tail -5 /var/log/containerd.log
exit 1

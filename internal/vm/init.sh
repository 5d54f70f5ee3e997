#!/bin/busybox sh
# The guest's first process: load the modules, find the cards, run what /runs says, power off. The lines "GUEST ..." are for the host.
B=/bin/busybox
$B mkdir -p /proc /sys /dev /tmp /root /run /var/lib
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
$B mount -t tmpfs tmp /tmp
$B --install -s /bin
export PATH=/bin HOME=/root
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 none /sys/fs/cgroup && echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
for m in /modules/*.ko; do
	case $m in
	*bonding*) options=max_bonds=0 ;; # tests make their own
	*) options= ;;
	esac
	insmod "$m" $options || echo "GUEST ERROR insmod $m"
done
ip link set lo up
for d in /sys/class/net/*; do
	[ -e "$d/address" ] || continue # bonding_masters is a file
	case $(cat "$d/address") in
	52:54:00:00:00:01) LEFT=${d##*/} ;;
	52:54:00:00:00:02) RIGHT=${d##*/} ;;
	esac
done
ip link set "$LEFT" up
ip link set "$RIGHT" up
i=0
while [ $i -lt 20 ] && ! { [ "$(cat /sys/class/net/$LEFT/operstate)" = up ] && [ "$(cat /sys/class/net/$RIGHT/operstate)" = up ]; }; do
	sleep 1
	i=$((i + 1))
done
export BLAST_NIC_PAIR="$LEFT,$RIGHT" BLAST_MUST_RUN=root,netns,xdp,vm,bond,vlan BLAST_VM_INSIDE=1
echo "GUEST UP $(uname -r) $BLAST_NIC_PAIR"
# run NAME LIMIT BINARY REGEXP: one test binary.
run() {
	echo "GUEST RUN $1"
	cd /tmp
	"$3" -test.v -test.timeout "$2" -test.run "$4"
	echo "GUEST END $1 $?"
}
. /runs
echo "GUEST DONE"
poweroff -f

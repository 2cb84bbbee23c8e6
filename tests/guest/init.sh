#!/bin/bash
# Process 1 of the guest: mounts and modules, then the tests named in TESTS, then off. Kernel arguments arrive as
# environment variables.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm

# the machine has no modules of this kernel where modprobe looks: lay the package's own below a folder in memory
release=$(uname -r)
mkdir -p "/run/root/lib/modules/$release"
mount --bind "/usr/lib/uml/modules/$release" "/run/root/lib/modules/$release"
for module in veth bridge sch_htb sch_tbf sch_netem sch_codel sch_fq_codel; do
    modprobe -d /run/root "$module" || echo "no module $module"
done
ip link set lo up

cd "$PROJECT" || exit 1
echo "guest kernel $release, ready after $(cut -d' ' -f1 /proc/uptime) s"
PYTHONPATH=$PROJECT PYTHONDONTWRITEBYTECODE=1 "$PYTHON" -m pytest -p no:cacheprovider --noconftest --color=no --durations=3 -k netem ${TESTS//,/ } </dev/null
echo "GUEST STATUS $? after $(cut -d' ' -f1 /proc/uptime) s"
echo o >/proc/sysrq-trigger
sleep 5

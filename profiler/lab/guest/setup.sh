#!/bin/busybox sh
# Runs once, before the SSH server starts: sets up what the kernel's command line asks for.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox --install -s /bin

# A board that cannot be set up reports the failure on its console and powers off.
try() {
    "$@" && return
    echo "the board cannot be set up: $* failed"
    poweroff -f
}

try mount -t proc proc /proc
try mount -t sysfs sysfs /sys
try mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
try mount -t devpts devpts /dev/pts
try mount -t tmpfs tmpfs /dev/shm
try mount -t tmpfs -o mode=0755 tmpfs /run
try mount -t tmpfs tmpfs /tmp
hostname emulated-board

# QEMU's user network gives a single guest this address.
try modprobe virtio_pci
try modprobe virtio_net
try ip link set lo up
try ip addr add 10.0.2.15/24 dev eth0
try ip link set eth0 up

wait_for() {
    tries=0
    until [ -e "$1" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 100 ]; then return 1; fi
        sleep 0.1
    done
}

set_up_card() {
    try modprobe sdhci_pci
    try modprobe crc32c_generic
    try modprobe ext4
    try wait_for /dev/mmcblk0
    try mount -t ext4 -o noatime /dev/mmcblk0 /mnt/sd
}

# READ_US,PROGRAM_US,ERASE_MS. The chip has 128 MiB with pages of 2 KiB in blocks of 128 KiB; its
# first 16 MiB stand for a system that must not be changed. The processor corrects four bits in every
# 512 bytes.
set_up_nand() {
    old_ifs=$IFS
    IFS=,
    set -- $1
    IFS=$old_ifs
    try modprobe cmdlinepart 'mtdparts=NAND 128MiB 3,3V 8-bit:16m(system)ro,-(scratch)'
    try modprobe nandsim id_bytes=0x20,0xf1,0x00,0x15 bch=4 do_delays=1 \
        access_delay="$1" programm_delay="$2" erase_delay="$3"
    try grep -q '"scratch"' /proc/mtd
}

# IDLE_W,BUSY_W. An INA226 with its address pins A0 and A1 on ground, and a shunt of 10 mOhm, which
# its driver assumes. It averages four conversions of each quantity, so that it has a new value every
# 8.8 ms.
set_up_sensor() {
    try modprobe i2c_dev
    try modprobe i2c_stub chip_addr=0x40
    try modprobe ina2xx
    bus=$(grep -l '^SMBus stub' /sys/bus/i2c/devices/i2c-*/name)
    bus=${bus%/name}
    try board-sensor "/dev/${bus##*/}" "${1%,*}" "${1#*,}" /run/joulewright-sensor.log
    echo ina226 0x40 >"$bus/new_device"
    hwmon=$(echo "$bus"/*-0040/hwmon/hwmon*)
    try wait_for "$hwmon/power1_input"
    echo 9 >"$hwmon/update_interval"
}

for word in $(cat /proc/cmdline); do
    case $word in
    board.card=*) set_up_card ;;
    board.nand=*) set_up_nand "${word#*=}" ;;
    board.sensor=*) set_up_sensor "${word#*=}" ;;
    esac
done
echo "the board is set up"

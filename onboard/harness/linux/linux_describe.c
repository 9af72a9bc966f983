#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* `stat` refuses large inode numbers otherwise */
#include "linux_describe.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "joulewright.h"
#include "linux_replay_channel.h"
#include "linux_support.h"

static void say(const char *key, const char *value) {
    if (*value) {
        printf("%s=%s\n", key, value);
    }
}

static void say_number(const char *key, uint64_t value) {
    if (value) {
        printf("%s=%" PRIu64 "\n", key, value);
    }
}

/* Print the first line of the first file that is not empty. */
static void say_first(const char *key, const char *const *paths) {
    char line[256] = "";
    for (; *paths && !*line; paths++) {
        jw_read_line(line, sizeof line, "%s", *paths);
    }
    say(key, line);
}

/* Find the value of a `name : value` line of a file in /proc. */
static void find_field(const char *path, const char *name, char *value, size_t size) {
    char line[512];
    FILE *file = fopen(path, "r");
    *value = '\0';
    while (file && !*value && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, name, strlen(name)) != 0) {
            continue;
        }
        colon++;
        colon += strspn(colon, " \t");
        colon[strcspn(colon, "\n")] = '\0';
        snprintf(value, size, "%s", colon);
    }
    if (file) {
        fclose(file);
    }
}

static uint64_t memory_bytes(const char *name) {
    char value[64];
    find_field("/proc/meminfo", name, value, sizeof value);
    return strtoull(value, NULL, 10) * 1024;
}

static void say_processor(int processor) {
    char value[256];
    find_field("/proc/cpuinfo", "model name", value, sizeof value);
    if (!*value) { /* on 64-bit Arm the name is in the device tree */
        jw_read_line(value, sizeof value, "/proc/device-tree/cpus/cpu@%d/compatible", processor);
    }
    say("cpu", value);
    say_number("cores", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
    printf("measured_processor=%d\n", processor);
    jw_read_sysfs(value, sizeof value, "devices/system/cpu/cpu%d/cpufreq/scaling_governor",
                  processor);
    say("governor", value);
    jw_read_sysfs(value, sizeof value, "devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                  processor);
    say_number("frequency_hz", strtoull(value, NULL, 10) * 1000);
}

static uint64_t last_level_cache_bytes(int processor) {
    uint64_t largest = 0;
    for (int index = 0; index < 8; index++) {
        char size[32];
        char *unit;
        jw_read_sysfs(size, sizeof size, "devices/system/cpu/cpu%d/cache/index%d/size", processor,
                      index);
        uint64_t bytes = strtoull(size, &unit, 10);
        bytes *= *unit == 'M' ? 1048576 : *unit == 'K' ? 1024 : 1;
        largest = bytes > largest ? bytes : largest;
    }
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (!largest) {
        const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
        const long level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
        largest = level3 > 0 ? (uint64_t)level3 : level2 > 0 ? (uint64_t)level2 : 0;
    }
#endif
    return largest;
}

/* Print the name and card identity of the disk with this directory. */
static void say_storage(const char *directory) {
    struct stat status;
    char disk[PATH_MAX], name[64], identity[128];
    if (stat(directory, &status) != 0) {
        jw_fail(JW_EXIT_STORAGE, "storage: %s: %s", directory, strerror(errno));
    }
    snprintf(disk, sizeof disk, "dev/block/%u:%u", major(status.st_dev), minor(status.st_dev));
    jw_read_sysfs(name, sizeof name, "%s/partition", disk);
    if (*name) { /* the whole disk is the partition's parent */
        strcat(disk, "/..");
    }
    jw_read_sysfs(name, sizeof name, "%s/device/name", disk);
    if (!*name) {
        jw_read_sysfs(name, sizeof name, "%s/device/model", disk);
    }
    jw_read_sysfs(identity, sizeof identity, "%s/device/cid", disk);
    if (!*identity) {
        jw_read_sysfs(identity, sizeof identity, "%s/device/serial", disk);
    }
    if (*name || *identity) {
        printf("storage_card=%s%s%s\n", name, *name && *identity ? " " : "", identity);
    }
}

void jw_describe(int processor, const char *storage) {
    static const char *const model[] = {"/proc/device-tree/model", "/sys/class/dmi/id/product_name",
                                        NULL};
    static const char *const serial[] = {"/proc/device-tree/serial-number",
                                         "/sys/class/dmi/id/product_serial", NULL};
    static const char *const boot[] = {"/proc/sys/kernel/random/boot_id", NULL};
    struct utsname system;
    if (uname(&system) == 0) {
        printf("kernel=%s %s %s\n", system.sysname, system.release, system.machine);
    }
    say_first("model", model);
    say_first("serial", serial);
    say_first("boot_id", boot);
    say_processor(processor);
    say_number("last_level_cache_bytes", last_level_cache_bytes(processor));
    say_number("memory_bytes", memory_bytes("MemTotal"));
    say_number("memory_available_bytes", memory_bytes("MemAvailable"));
    say_number("page_bytes", (uint64_t)sysconf(_SC_PAGESIZE));
    if (storage) {
        say_storage(storage);
        say_number("handover_ns", jw_linux_handover_ns());
    }
    if (access("/usr/bin/vcgencmd", X_OK) == 0) {
        say("vcgencmd", "/usr/bin/vcgencmd");
    }
    say("matmul", jw_matmul_name);
    say_number("kernel_count", jw_kernel_count);
}

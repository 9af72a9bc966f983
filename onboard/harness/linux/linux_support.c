#define _GNU_SOURCE
#include "linux_support.h"

#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "platform.h"

static const char *sysfs_root = "/sys";
static int pinned_processor = 0;
static bool is_pinned = false;
static bool counts_helper = false;
static clockid_t helper_clock;

void jw_fail(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("joulewright-harness: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(code);
}

void jw_set_sysfs(const char *root) {
    sysfs_root = root;
}

size_t jw_read_text(char *text, size_t size, const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file >= 0 ? read(file, text, size - 1) : -1;
    const size_t length = got > 0 ? (size_t)got : 0;
    if (file >= 0) {
        close(file);
    }
    text[length] = '\0';
    return length;
}

static void read_line(char *line, size_t size, const char *path) {
    const char *end = line + jw_read_text(line, size, path);
    char *kept = line;
    for (const char *c = line; c < end && *c != '\n'; c++) {
        if ((unsigned char)*c >= ' ' && *c != 127) {
            *kept++ = *c;
        }
    }
    *kept = '\0';
}

void jw_read_line(char *line, size_t size, const char *format, ...) {
    char path[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    read_line(line, size, path);
}

void jw_read_sysfs(char *line, size_t size, const char *format, ...) {
    char path[4096];
    va_list arguments;
    const int length = snprintf(path, sizeof path / 2, "%s/", sysfs_root);
    va_start(arguments, format);
    vsnprintf(path + length, sizeof path - (size_t)length, format, arguments);
    va_end(arguments);
    read_line(line, size, path);
}

static int last_allowed(int other_than) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        for (int processor = CPU_SETSIZE - 1; processor >= 0; processor--) {
            if (processor != other_than && CPU_ISSET(processor, &allowed)) {
                return processor;
            }
        }
    }
    return -1;
}

int jw_spare_processor(void) {
    const int measuring = last_allowed(-1);
    const int spare = last_allowed(measuring);
    return spare >= 0 ? spare : measuring;
}

bool jw_run_on(int processor) {
    cpu_set_t chosen;
    CPU_ZERO(&chosen);
    CPU_SET(processor, &chosen);
    return sched_setaffinity(0, sizeof chosen, &chosen) == 0;
}

int jw_pin_processor(void) {
    const int processor = last_allowed(-1);
    if (processor >= 0 && jw_run_on(processor)) {
        pinned_processor = processor;
        is_pinned = true;
    }
    return pinned_processor;
}

static uint64_t read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t jw_clock_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

void jw_count_running(pthread_t helper) {
    counts_helper = is_pinned && pthread_getcpuclockid(helper, &helper_clock) == 0;
}

void jw_count_running_alone(void) {
    counts_helper = false;
}

uint64_t jw_working_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t jw_running_ns(void) {
    return read_clock(CLOCK_THREAD_CPUTIME_ID) + (counts_helper ? read_clock(helper_clock) : 0);
}

uint64_t jw_frequency_khz(void) {
    char line[32];
    jw_read_sysfs(line, sizeof line, "devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
                  pinned_processor);
    return strtoull(line, NULL, 10);
}

void jw_sleep_until(uint64_t clock_ns) {
    const struct timespec until = {(time_t)(clock_ns / UINT64_C(1000000000)),
                                   (long)(clock_ns % UINT64_C(1000000000))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {
        /* interrupted by a signal: the deadline is absolute */
    }
}

long jw_temperature_mc(void) {
    char line[32];
    long hottest = 0;
    for (int zone = 0; zone < 64; zone++) {
        jw_read_sysfs(line, sizeof line, "class/thermal/thermal_zone%d/type", zone);
        if (!*line) {
            break;
        }
        /* that of a part that is switched off cannot be read */
        jw_read_sysfs(line, sizeof line, "class/thermal/thermal_zone%d/temp", zone);
        const long temperature = strtol(line, NULL, 10);
        hottest = temperature > hottest ? temperature : hottest;
    }
    return hottest;
}

jw_throttling jw_read_throttling(void) {
    char line[64];
    jw_throttling found = {-1, -1};
    jw_read_sysfs(line, sizeof line, "devices/platform/soc/soc:firmware/get_throttled");
    if (*line) {
        found.bits = strtol(line, NULL, 16);
    }
    for (int device = 0; device < 64; device++) {
        jw_read_sysfs(line, sizeof line, "class/thermal/cooling_device%d/type", device);
        if (!*line) {
            break;
        }
        /* cpufreq-cpu0 (from Linux 5.9), thermal-cpufreq-0 (before), Processor (ACPI) */
        if (!strstr(line, "cpufreq") && strcmp(line, "Processor") != 0) {
            continue;
        }
        jw_read_sysfs(line, sizeof line, "class/thermal/cooling_device%d/cur_state", device);
        found.cooling = (found.cooling < 0 ? 0 : found.cooling) + strtol(line, NULL, 10);
    }
    return found;
}

uint64_t jw_steal_ms(void) {
    char line[256];
    unsigned long long steal = 0;
    jw_read_line(line, sizeof line, "/proc/stat");
    sscanf(line, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &steal);
    const long ticks_per_s = sysconf(_SC_CLK_TCK);
    return ticks_per_s > 0 ? steal * 1000u / (unsigned long)ticks_per_s : 0;
}

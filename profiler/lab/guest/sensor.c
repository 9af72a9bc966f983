/*
 * Stands in for the analogue side of an INA226 on an emulated I2C bus: sets the chip's registers to
 * the power that a board would draw under the processor's present load.
 *
 *     board-sensor /dev/i2c-N IDLE_W BUSY_W LOG
 *
 * The power lies between that of an idle and that of a fully busy processor, in proportion to the
 * share of the processor's time that was used since the last value. As on the chip, every value is
 * an average over one interval, set in the configuration register by the kernel's driver, and
 * stands until the next one. Registers and formulas: INA226 data sheet, Texas Instruments SBOS547A,
 * sections 7.5 and 7.6.
 *
 * Each time the power register changes, a line is written to LOG: CLOCK_MONOTONIC in nanoseconds,
 * and the new power in microwatts. A log of more than 8 MiB is renamed to LOG.old.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/i2c-dev.h>
#include <linux/i2c.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define CHIP_ADDRESS 0x40
#define POWER_ON_CONFIGURATION 0x4127
#define MANUFACTURER_ID 0x5449
#define DIE_ID 0x2260

/* The driver of the kernel writes this calibration, and assumes a shunt of 10 mOhm. */
#define CALIBRATION 2048
#define SHUNT_OHM 0.010

#define BUS_V 5.0
#define BUS_LSB_V 1.25e-3
#define SHUNT_LSB_V 2.5e-6
#define POWER_LSB_UW 6250 /* 25 times the current's, which is 0.00512 / (CALIBRATION * SHUNT_OHM) */

#define LOG_LIMIT_BYTES (8 << 20)

enum { CONFIGURATION, SHUNT_VOLTAGE, BUS_VOLTAGE, POWER, CURRENT, MANUFACTURER = 0xfe, DIE };

typedef struct {
    double idle_w, busy_w;
    const char *log_path;
    int log;
    off_t log_bytes;
    long shown; /* value of the power register; -1 before the first value */
} sensor;

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "board-sensor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* SMBus sends the low byte of a word first, the chip the high one. */
static uint16_t swapped(uint16_t word) {
    return (uint16_t)(word << 8 | word >> 8);
}

static uint16_t transfer(int bus, uint8_t register_number, bool is_read, uint16_t word) {
    union i2c_smbus_data data = {.word = swapped(word)};
    struct i2c_smbus_ioctl_data request = {
        .read_write = is_read ? I2C_SMBUS_READ : I2C_SMBUS_WRITE,
        .command = register_number,
        .size = I2C_SMBUS_WORD_DATA,
        .data = &data,
    };
    if (ioctl(bus, I2C_SMBUS, &request) != 0) {
        fail("the I2C bus");
    }
    return swapped(data.word);
}

static void set(int bus, uint8_t register_number, long value) {
    transfer(bus, register_number, false, (uint16_t)value);
}

/* Interval between values, from the conversion times of both quantities and the averages. */
static int64_t interval_ns(uint16_t configuration) {
    static const int64_t conversion_us[] = {140, 204, 332, 588, 1100, 2116, 4156, 8244};
    static const int64_t averages[] = {1, 4, 16, 64, 128, 256, 512, 1024};
    const int64_t each_us =
        conversion_us[configuration >> 6 & 7] + conversion_us[configuration >> 3 & 7];
    return averages[configuration >> 9 & 7] * each_us * 1000;
}

/*
 * Processor time that tasks have used since boot, summed over processors. The kernel adds a task's
 * time when the task leaves its processor; this program runs on each processor in turn, above all
 * other tasks, to enforce that.
 */
static int64_t busy_ns(int schedstat, int processors) {
    static char text[65536];
    for (int processor = 0; processors > 1 && processor < processors; processor++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) {
            fail("sched_setaffinity");
        }
    }
    const ssize_t length = pread(schedstat, text, sizeof text - 1, 0);
    if (length <= 0) {
        fail("/proc/schedstat");
    }
    text[length] = '\0';
    int64_t total = 0, used;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (sscanf(line, "cpu%*d %*u %*u %*u %*u %*u %*u %" SCNd64, &used) == 1) {
            total += used;
        }
    }
    return total;
}

static void open_log(sensor *self) {
    self->log = open(self->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    self->log_bytes = 0;
    if (self->log < 0) {
        fail(self->log_path);
    }
}

static void note(sensor *self, long power) {
    char line[64];
    const int length =
        snprintf(line, sizeof line, "%" PRId64 " %ld\n", clock_ns(), power * POWER_LSB_UW);
    if (self->log_bytes + length > LOG_LIMIT_BYTES) {
        char old[4096];
        snprintf(old, sizeof old, "%s.old", self->log_path);
        rename(self->log_path, old);
        close(self->log);
        open_log(self);
    }
    if (write(self->log, line, (size_t)length) != length) {
        fail(self->log_path);
    }
    self->log_bytes += length;
}

/* Sets the registers. As in the chip, current and power are computed from its two voltages. */
static void show(sensor *self, int bus, double share) {
    const double power_w = self->idle_w + (self->busy_w - self->idle_w) * share;
    const long bus_voltage = lround(BUS_V / BUS_LSB_V);
    const long shunt_voltage = lround(fmin(power_w / BUS_V * SHUNT_OHM / SHUNT_LSB_V, INT16_MAX));
    const long current = shunt_voltage * CALIBRATION / 2048;
    const long power = current * bus_voltage / 20000;
    if (power == self->shown) {
        return;
    }
    set(bus, BUS_VOLTAGE, bus_voltage);
    set(bus, SHUNT_VOLTAGE, shunt_voltage);
    set(bus, CURRENT, current);
    set(bus, POWER, power);
    note(self, power);
    self->shown = power;
}

/*
 * Intervals follow one another without a gap, however late this program is woken: it is late when an
 * idle emulated processor is woken late, and idle until then.
 */
static _Noreturn void follow(sensor *self, int bus, int schedstat) {
    const int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t used_ns = busy_ns(schedstat, processors);
    for (int64_t end_ns = clock_ns();;) {
        const int64_t length_ns = interval_ns(transfer(bus, CONFIGURATION, true, 0));
        end_ns += length_ns;
        const struct timespec until = {end_ns / 1000000000, end_ns % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
        }
        const int64_t now_used_ns = busy_ns(schedstat, processors);
        const double share = (double)(now_used_ns - used_ns) / ((double)length_ns * processors);
        show(self, bus, fmin(fmax(share, 0.0), 1.0));
        used_ns = now_used_ns;
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fputs("usage: board-sensor /dev/i2c-N IDLE_W BUSY_W LOG\n", stderr);
        return 2;
    }
    sensor self = {
        .idle_w = atof(argv[2]), .busy_w = atof(argv[3]), .log_path = argv[4], .shown = -1};
    const int bus = open(argv[1], O_RDWR | O_CLOEXEC);
    if (bus < 0 || ioctl(bus, I2C_SLAVE_FORCE, CHIP_ADDRESS) != 0) {
        fail(argv[1]); /* forced, since the kernel's driver uses it as well */
    }
    const int schedstat = open("/proc/schedstat", O_RDONLY | O_CLOEXEC);
    if (schedstat < 0) {
        fail("/proc/schedstat");
    }
    open_log(&self);
    set(bus, CONFIGURATION, POWER_ON_CONFIGURATION);
    set(bus, MANUFACTURER, MANUFACTURER_ID);
    set(bus, DIE, DIE_ID);
    show(&self, bus, 0.0);

    const struct sched_param above_all = {sched_get_priority_max(SCHED_FIFO)};
    if (sched_setscheduler(0, SCHED_FIFO, &above_all) != 0 || daemon(0, 0) != 0) {
        fail("starting in the background");
    }
    follow(&self, bus, schedstat);
}

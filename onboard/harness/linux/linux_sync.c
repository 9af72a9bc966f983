#define _GNU_SOURCE
#include "linux_sync.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/gpio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "linux_support.h"
#include "platform.h"

static const char consumer[] = "joulewright";
static int line_descriptor = -1;

/* Descriptor of the line; -1 with errno set on failure. */
static int request_line(int chip, uint32_t line);
static bool set_line(int descriptor, bool high);

#ifdef GPIO_V2_GET_LINE_IOCTL

static int request_line(int chip, uint32_t line) {
    struct gpio_v2_line_request request = {.offsets = {line}, .num_lines = 1};
    strcpy(request.consumer, consumer);
    request.config.flags = GPIO_V2_LINE_FLAG_OUTPUT;
    return ioctl(chip, GPIO_V2_GET_LINE_IOCTL, &request) == 0 ? request.fd : -1;
}

static bool set_line(int descriptor, bool high) {
    struct gpio_v2_line_values values = {.bits = high, .mask = 1};
    return ioctl(descriptor, GPIO_V2_LINE_SET_VALUES_IOCTL, &values) == 0;
}

#else /* headers before Linux 5.10, as on a Jetson TX2 */

static int request_line(int chip, uint32_t line) {
    struct gpiohandle_request request = {.lineoffsets = {line}, .lines = 1};
    strcpy(request.consumer_label, consumer);
    request.flags = GPIOHANDLE_REQUEST_OUTPUT;
    return ioctl(chip, GPIO_GET_LINEHANDLE_IOCTL, &request) == 0 ? request.fd : -1;
}

static bool set_line(int descriptor, bool high) {
    struct gpiohandle_data data = {.values = {high}};
    return ioctl(descriptor, GPIOHANDLE_SET_LINE_VALUES_IOCTL, &data) == 0;
}

#endif

void jw_sync_open(const char *chip, uint32_t line) {
    const int descriptor = open(chip, O_RDWR | O_CLOEXEC);
    line_descriptor = descriptor < 0 ? -1 : request_line(descriptor, line);
    if (line_descriptor < 0) {
        jw_fail(JW_EXIT_METER, "sync: line %u of %s cannot be driven: %s", line, chip,
                strerror(errno));
    }
    close(descriptor);
}

void jw_sync_line(bool high) {
    if (line_descriptor >= 0 && !set_line(line_descriptor, high)) {
        jw_fail(JW_EXIT_METER, "sync: the line cannot be driven any more: %s", strerror(errno));
    }
}

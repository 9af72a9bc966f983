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

static int line_descriptor = -1;

void jw_sync_open(const char *chip, uint32_t line) {
    struct gpio_v2_line_request request = {.offsets = {line}, .num_lines = 1};
    strcpy(request.consumer, "joulewright");
    request.config.flags = GPIO_V2_LINE_FLAG_OUTPUT;
    const int descriptor = open(chip, O_RDWR | O_CLOEXEC);
    if (descriptor < 0 || ioctl(descriptor, GPIO_V2_GET_LINE_IOCTL, &request) != 0) {
        jw_fail(JW_EXIT_METER, "sync: line %u of %s cannot be driven: %s", line, chip,
                strerror(errno));
    }
    close(descriptor);
    line_descriptor = request.fd;
}

void jw_sync_line(bool high) {
    if (line_descriptor < 0) {
        return;
    }
    struct gpio_v2_line_values values = {.bits = high, .mask = 1};
    if (ioctl(line_descriptor, GPIO_V2_LINE_SET_VALUES_IOCTL, &values) != 0) {
        jw_fail(JW_EXIT_METER, "sync: the line cannot be driven any more: %s", strerror(errno));
    }
}

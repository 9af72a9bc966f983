#define _GNU_SOURCE
#include "linux_i2c.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/i2c-dev.h>
#include <linux/i2c.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "linux_support.h"

int jw_i2c_open(const char *bus, uint8_t address) {
    const int descriptor = open(bus, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) {
        jw_fail(JW_EXIT_METER, "meter: %s: %s; is I2C switched on, and may this user open it?", bus,
                strerror(errno));
    }
    if (ioctl(descriptor, I2C_SLAVE, (long)address) != 0) {
        jw_fail(JW_EXIT_METER, "meter: %s: address 0x%02x: %s%s", bus, address, strerror(errno),
                errno == EBUSY ? "; a kernel driver uses the sensor: describe it with kind hwmon"
                               : "");
    }
    return descriptor;
}

/* Transfer a word by SMBus, which every adapter supports. Its words begin with the low byte. */
static bool transfer(int descriptor, uint8_t direction, uint8_t chip_register, uint16_t *value) {
    union i2c_smbus_data data = {.word = (uint16_t)(*value << 8 | *value >> 8)};
    struct i2c_smbus_ioctl_data call = {
        .read_write = direction,
        .command = chip_register,
        .size = I2C_SMBUS_WORD_DATA,
        .data = &data,
    };
    if (ioctl(descriptor, I2C_SMBUS, &call) != 0) {
        return false;
    }
    *value = (uint16_t)(data.word << 8 | data.word >> 8);
    return true;
}

bool jw_i2c_read(int descriptor, uint8_t chip_register, uint16_t *value) {
    *value = 0;
    return transfer(descriptor, I2C_SMBUS_READ, chip_register, value);
}

bool jw_i2c_write(int descriptor, uint8_t chip_register, uint16_t value) {
    return transfer(descriptor, I2C_SMBUS_WRITE, chip_register, &value);
}

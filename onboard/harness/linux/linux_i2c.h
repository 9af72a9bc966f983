/* 16-bit registers of chips on an I2C bus, most significant byte first. */
#ifndef JW_LINUX_I2C_H
#define JW_LINUX_I2C_H

#include <stdbool.h>
#include <stdint.h>

/* Open a chip on a bus. Exits with JW_EXIT_METER if the bus does not exist, or a kernel driver uses
 * the chip. */
int jw_i2c_open(const char *bus, uint8_t address);

/* Read or write a register; false with errno set on failure. */
bool jw_i2c_read(int descriptor, uint8_t chip_register, uint16_t *value);
bool jw_i2c_write(int descriptor, uint8_t chip_register, uint16_t value);

#endif

/* Where a meter's whole numbers come from on a Linux board.
 *
 *   file=/sys/class/hwmon/hwmon3/power1_input       what the file holds
 *   i2c=/dev/i2c-1 address=64 register=1            a 16-bit register, signed, big-endian
 *   pmic=vcgencmd                                   microwatts: volts × amperes of every rail that
 *                                                   `vcgencmd pmic_read_adc` tells both of
 */
#ifndef JW_LINUX_SOURCE_H
#define JW_LINUX_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "text.h"

typedef struct jw_source jw_source;

/* Reads what follows `sample` to the end of the line; NULL leaves text->error. Exits with
 * JW_EXIT_METER if nothing can be read from the source. */
jw_source *jw_source_open(jw_text *text);

bool jw_source_read(const jw_source *source, int64_t *value);

void jw_source_close(jw_source *source);

/* `i2c=... address=... register=... value=...`: writes a register. False leaves text->error; exits
 * with JW_EXIT_METER if the chip does not take it. */
bool jw_write_register(jw_text *text);

#endif

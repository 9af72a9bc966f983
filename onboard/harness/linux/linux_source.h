/* Sources of a meter's whole numbers on a Linux board.
 *
 *   file=/sys/class/hwmon/hwmon3/power1_input       the number in the file
 *   i2c=/dev/i2c-1 address=64 register=1            a 16-bit register, signed, big-endian
 *   pmic=vcgencmd                                   microwatts: the sum of volts × amperes over all
 *                                                   rails for which `vcgencmd pmic_read_adc`
 *                                                   reports both
 */
#ifndef JW_LINUX_SOURCE_H
#define JW_LINUX_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "text.h"

typedef struct jw_source jw_source;

/* Open the source that the rest of a `sample` line describes. Returns NULL with text->error set if
 * the line is wrong. Exits with JW_EXIT_METER if the source cannot be read. */
jw_source *jw_source_open(jw_text *text);

/* Read a number; false on failure. The first call may start a process, later ones need no memory. */
bool jw_source_read(jw_source *source, int64_t *value);

/* Close and free a source. */
void jw_source_close(jw_source *source);

/* Write a register, as `i2c=... address=... register=... value=...` says. Returns false with
 * text->error set if the line is wrong. Exits with JW_EXIT_METER if the chip refuses. */
bool jw_write_register(jw_text *text);

#endif

/* What the measuring core needs from the platform that it runs on. Firmware brings its own. */
#ifndef JW_PLATFORM_H
#define JW_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

/* A clock that never steps back. */
uint64_t jw_clock_ns(void);

/* Time for which the measuring thread had a processor: clock less pre-emption. Where nothing can
 * pre-empt it, the clock itself. */
uint64_t jw_running_ns(void);

/* Of the processor that measures, as the platform reports it now; 0 where it reports none. */
uint64_t jw_frequency_khz(void);

/* In millidegrees Celsius; 0 where the platform reports none. */
long jw_temperature_mc(void);

/* With the processor asleep where it can be. */
void jw_sleep_until(uint64_t clock_ns);

/* The line that tells an instrument when a window is open. Nothing where none is wired. It also
 * pulses for windows that are not recorded (calibration, disturbed tries), each of its own
 * length. */
void jw_sync_line(bool high);

#endif

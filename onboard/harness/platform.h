/* Functions that the platform provides to the measuring core: Linux or firmware. */
#ifndef JW_PLATFORM_H
#define JW_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

/* Monotonic clock, in nanoseconds. */
uint64_t jw_clock_ns(void);

/* Processor time of the measuring thread, in nanoseconds; the clock itself where nothing can
 * preempt it. */
uint64_t jw_running_ns(void);

/* Processor time of the calling thread, measuring or not, in nanoseconds; the clock itself where
 * nothing can preempt it. */
uint64_t jw_working_ns(void);

/* Current frequency of the measuring processor in kHz; 0 if the platform reports none. */
uint64_t jw_frequency_khz(void);

/* Temperature in millidegrees Celsius; 0 if the platform reports none. */
long jw_temperature_mc(void);

/* Wait until this time of jw_clock_ns, with the processor asleep where possible. */
void jw_sleep_until(uint64_t clock_ns);

/* Drive the line that shows an instrument when a window is open; without such a line, do nothing.
 * It also pulses for windows that are not recorded (calibration, disturbed tries), which differ in
 * length. */
void jw_sync_line(bool high);

#endif

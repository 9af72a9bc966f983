/* What the measuring core needs from the platform that it runs on. Firmware brings its own. */
#ifndef JW_PLATFORM_H
#define JW_PLATFORM_H

#include <stdint.h>

/* A clock that never steps back. */
uint64_t jw_clock_ns(void);

/* Time for which the measuring thread had a processor: clock less pre-emption. Where nothing can
 * pre-empt it, the clock itself. */
uint64_t jw_running_ns(void);

/* Of the processor that measures, as the platform reports it now; 0 where it reports none. */
uint64_t jw_frequency_khz(void);

#endif

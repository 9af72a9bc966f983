/* A GPIO line that shows an instrument when a window is open. */
#ifndef JW_LINUX_SYNC_H
#define JW_LINUX_SYNC_H

#include <stdint.h>

/* Request the line as an output, low; jw_sync_line drives it from then on. The kernel releases it
 * when the process ends. Exits with JW_EXIT_METER on failure. */
void jw_sync_open(const char *chip, uint32_t line);

#endif

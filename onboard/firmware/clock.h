/* Implements the clock of platform.h with the board's counter. */
#ifndef JW_CLOCK_H
#define JW_CLOCK_H

#include <stdbool.h>

/* Start the counter. */
void jw_clock_init(void);

/* Whether the board's counter was seen to move; otherwise nothing can be measured. */
bool jw_clock_moves(void);

#endif

/* The lines of a plan, those that replay, and firmware's own: scratch, storage, kernel, health. */
#ifndef JW_LINES_H
#define JW_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "message.h"

/* All of the arena, no medium, no step begun. */
void jw_lines_begin(void);

/* The memory that WRITE and READ reach. */
unsigned char *jw_lines_memory(size_t *bytes);

/* Takes the line up, which jw_line_run executes then. True if it measures: nothing may be sent or
 * heard until it is done. */
bool jw_line_begin(char *line);

/* What it has to say is written. False: why it was refused. */
bool jw_line_run(jw_message *answer);

#endif

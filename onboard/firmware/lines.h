/* Carries out lines: those of runner.h and replay.h, and scratch, storage, kernel, health. */
#ifndef JW_LINES_H
#define JW_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "message.h"

/* Reset: the arena is all memory, without a medium and without a step. */
void jw_lines_begin(void);

/* The memory that WRITE and READ access. */
unsigned char *jw_lines_memory(size_t *bytes);

/* Parse the first word of a line, which jw_line_run then carries out. True if the line measures:
 * nothing may be sent or received until it is done. */
bool jw_line_begin(char *line);

/* Carry out the line and write its answer. False if it was refused; the answer then says why. */
bool jw_line_run(jw_message *answer);

#endif

/* Reads the sources of a meter at a fixed rate, in a thread of its own on another processor. */
#ifndef JW_LINUX_SAMPLER_H
#define JW_LINUX_SAMPLER_H

#include <stdint.h>
#include <stdio.h>

#include "linux_source.h"

#define JW_MAX_SOURCES 8

typedef struct jw_sampler jw_sampler;

/* Takes the sources over. */
jw_sampler *jw_sampler_start(jw_source *const *sources, int count, uint64_t period_ns,
                             int processor);

/* Writes what has been sampled so far, one `clock_ns value value ...` a line. A sample that could
 * not be read, or for which there was no room, is missing: whoever reads the trace sees the gap. */
void jw_sampler_drain(jw_sampler *sampler, FILE *output);

/* Lets two more samples come in, ends the thread and writes what is left. */
void jw_sampler_stop(jw_sampler *sampler, FILE *output);

#endif

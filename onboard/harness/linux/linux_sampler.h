/* Samples the sources of a meter at a fixed rate, in a thread on another processor. */
#ifndef JW_LINUX_SAMPLER_H
#define JW_LINUX_SAMPLER_H

#include <stdint.h>
#include <stdio.h>

#include "linux_source.h"

#define JW_MAX_SOURCES 8

typedef struct jw_sampler jw_sampler;

/* Start sampling, every period_ns, on this processor. Each sample is written as a line
 * `clock_ns value value ...`; those that could not be read are missing, which shows as a gap in the
 * times. The sampler owns the sources, and the output until it stops. */
jw_sampler *jw_sampler_start(jw_source *const *sources, int count, uint64_t period_ns,
                             int processor, FILE *output);

/* Write the samples so far. */
void jw_sampler_drain(jw_sampler *sampler);

/* Take two more samples, end the thread, and write the remaining samples. */
void jw_sampler_stop(jw_sampler *sampler);

#endif

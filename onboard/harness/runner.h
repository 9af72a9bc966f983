/* Runs the windows of a harness plan on any platform: plan.h reads lines, core.h measures.
 *
 *   arena bytes=67108864
 *   tries count=3                                       most tries of a disturbed window
 *   op ... | step ... , buffer ... , call ...           see plan.h
 *   idle id=0 duration_ns=100000000
 *   marker id=3 bit_ns=20000000 bits=0110100110010110   1: busy, 0: idle
 *   transfer id=7 method=read bytes=4096 most=16 min_ns=20000000 tail_ns=50000000
 *
 * The platform reads the lines, provides memory and medium, and handles the records.
 */
#ifndef JW_RUNNER_H
#define JW_RUNNER_H

#include "core.h"
#include "medium.h"
#include "text.h"

/* Record of a window. */
typedef struct {
    uint32_t id;
    jw_window window;
    uint64_t tail_end_ns; /* the window's end; for transfers the end of the wait after it */
} jw_record;

/* State of the runner's lines. */
typedef struct {
    jw_arena memory; /* all available memory */
    jw_arena arena;  /* the part of it that the line `arena` takes */
    uint32_t tries;
    jw_medium *medium; /* NULL: no storage */
    jw_step step;
    uint32_t step_id;
    jw_limits step_limits;
    bool in_step;
} jw_runner;

/* Result of a line. */
typedef enum {
    JW_LINE_FOREIGN,  /* not one of the lines above */
    JW_LINE_READ,     /* carried out, without a record */
    JW_LINE_RECORDED, /* a window was measured */
    JW_LINE_REFUSED,  /* failed; text->key and text->error say why */
} jw_line_result;

/* Whether jw_runner_line would measure. The platform stops communicating before that. */
bool jw_runner_measures(const jw_runner *runner, const char *word);

/* Carry out the line that begins with `word`; `record` is set by JW_LINE_RECORDED. */
jw_line_result jw_runner_line(jw_runner *runner, const char *word, jw_text *text,
                              jw_record *record);

/* Write a record as `window id=... tries=...`, without an end of line; at most JW_RECORD_BYTES with
 * the final zero. */
#define JW_RECORD_BYTES 320
void jw_record_text(char *text, const jw_record *record);

#endif

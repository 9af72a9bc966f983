/* The measuring core: operands in an arena, executions in a loop, a window around them.
 *
 *     fill operands │ calibrate │ frequency │ start │ execution × count │ end │ frequency
 *                                            └─────── the window ──────┘
 *
 * C99, no allocation, no input or output: the same source measures on Linux and in firmware.
 */
#ifndef JW_CORE_H
#define JW_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "joulewright.h"

#define JW_ALIGNMENT 64

/* --- memory ------------------------------------------------------------------------------- */

typedef struct {
    unsigned char *base; /* aligned to JW_ALIGNMENT */
    size_t size;
    size_t used;
} jw_arena;

/* The next bytes of the arena, aligned to JW_ALIGNMENT; NULL if they do not fit. */
void *jw_arena_take(jw_arena *arena, size_t bytes);

typedef enum { JW_FILL_ZERO, JW_FILL_SIGNED, JW_FILL_POSITIVE, JW_FILL_INDEX } jw_fill_kind;

typedef struct {
    jw_fill_kind kind;
    float amplitude;      /* signed: values in [-amplitude, amplitude] */
    uint32_t index_bound; /* index: int32 values below it */
} jw_fill;

/* Deterministic pseudo-random values; the same seed gives the same bytes. `bytes` is a multiple
 * of 4. Positive values lie in [0.5, 1.5). */
void jw_fill_memory(void *memory, size_t bytes, const jw_fill *fill, uint32_t seed);

/* --- arithmetic --------------------------------------------------------------------------- */

uint32_t jw_greatest_common_divisor(uint32_t a, uint32_t b);

/* --- one operation ------------------------------------------------------------------------ */

typedef struct {
    size_t bytes;
    jw_fill fill;
    int in_place; /* of a written operand: the read one whose bytes it takes over, or -1 */
} jw_operand;

typedef struct {
    const jw_kernel *kernel;
    int32_t attributes[JW_MAX_ATTRIBUTES];
    float scalars[JW_MAX_SCALARS];
    jw_operand reads[JW_MAX_OPERANDS];
    jw_operand writes[JW_MAX_OPERANDS];
    uint8_t read_count;
    uint8_t write_count;
    uint32_t copies; /* of all operands; executions go through them in turn (1: cache-warm) */
} jw_op;

/* An operation laid out in an arena, ready to be executed. */
typedef struct {
    const jw_op *op;
    unsigned char *operands; /* of the first copy */
    size_t copy_bytes;
    size_t read_offset[JW_MAX_OPERANDS];
    size_t write_offset[JW_MAX_OPERANDS];
    const void *reads[JW_MAX_OPERANDS];
    void *writes[JW_MAX_OPERANDS];
    jw_call call;
    uint32_t copy;
    uint32_t stride; /* coprime to copies: a prefetcher cannot guess the next copy */
} jw_op_run;

/* Bytes that one copy of the operands takes up. */
size_t jw_op_copy_bytes(const jw_op *op);

/* Empties the arena, lays out and fills. NULL, or the sentence that says why not. */
const char *jw_op_prepare(jw_op_run *run, const jw_op *op, jw_arena *arena);

/* Context: jw_op_run. */
void jw_op_execute(void *context, uint64_t count);

/* --- a training step ---------------------------------------------------------------------- */

/* Every buffer exists once and there is one workspace, as when the step is executed. The tables
 * live in the arena, in front of what they describe. */
typedef struct {
    jw_arena *arena;
    uint32_t buffer_capacity, buffer_count;
    uint32_t call_capacity, call_count;
    void **buffers;
    size_t *buffer_bytes;
    jw_call *calls;
    const jw_kernel **kernels;
    size_t workspace_bytes;
} jw_step;

const char *jw_step_begin(jw_step *step, jw_arena *arena, uint32_t buffers, uint32_t calls);
const char *jw_step_buffer(jw_step *step, size_t bytes, const jw_fill *fill);

typedef struct {
    const jw_kernel *kernel;
    int32_t attributes[JW_MAX_ATTRIBUTES];
    float scalars[JW_MAX_SCALARS];
    uint32_t reads[JW_MAX_OPERANDS]; /* indices of buffers */
    uint32_t writes[JW_MAX_OPERANDS];
    uint8_t read_count;
    uint8_t write_count;
} jw_step_call;

const char *jw_step_add(jw_step *step, const jw_step_call *call);

/* True when all buffers and calls that were announced are there. */
bool jw_step_complete(const jw_step *step);

/* Takes the workspace. */
const char *jw_step_end(jw_step *step);

/* Context: jw_step; each execution is a whole step. */
void jw_step_execute(void *context, uint64_t count);

/* --- windows ------------------------------------------------------------------------------ */

typedef void jw_execute(void *context, uint64_t count);

typedef struct {
    uint64_t first;  /* executions to begin with, from an earlier block; 0: calibrate */
    uint64_t min_ns; /* a window is at least so long, in running time */
    uint64_t max_ns; /* and not longer, unless a single execution is */
} jw_limits;

typedef struct {
    uint64_t executions;
    uint64_t start_ns, end_ns;
    uint64_t running_ns;
    uint64_t frequency_before_khz, frequency_after_khz;
    uint32_t tries;
} jw_window;

/* A window in which the frequency moved, or in which the thread was pre-empted for more than these
 * shares of it, is repeated up to `tries` times in all; the least disturbed one is returned. */
#define JW_FREQUENCY_TOLERANCE_PERCENT 2
#define JW_PREEMPTION_TOLERANCE_PERCENT 2

jw_window jw_measure(jw_execute *execute, void *context, const jw_limits *limits, uint32_t tries);

#endif

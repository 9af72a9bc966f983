/* The measuring core: operands in an arena, executions in a loop, a window around them.
 *
 *     fill operands │ calibrate │ frequency │ start │ execution × count │ end │ frequency
 *                                            └─────── the window ──────┘
 *
 * C99, no allocation, no input or output: the same source runs on Linux and in firmware.
 */
#ifndef JW_CORE_H
#define JW_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "joulewright.h"

#define JW_ALIGNMENT 64

/* --- memory ------------------------------------------------------------------------------- */

/* Memory from which buffers are taken; sizes in bytes. */
typedef struct {
    unsigned char *base; /* aligned to JW_ALIGNMENT */
    size_t size;
    size_t used;
} jw_arena;

/* Take the next bytes of the arena, aligned to JW_ALIGNMENT; NULL if they do not fit. */
void *jw_arena_take(jw_arena *arena, size_t bytes);

/* Values of a buffer before it is used. */
typedef enum { JW_FILL_ZERO, JW_FILL_SIGNED, JW_FILL_POSITIVE, JW_FILL_INDEX } jw_fill_kind;

typedef struct {
    jw_fill_kind kind;
    float amplitude;      /* JW_FILL_SIGNED: values in [-amplitude, amplitude] */
    uint32_t index_bound; /* JW_FILL_INDEX: int32 values in [0, index_bound) */
} jw_fill;

/* Fill memory with pseudo-random values; the same seed gives the same bytes. `bytes` is a multiple
 * of 4. JW_FILL_POSITIVE gives values in [0.5, 1.5). */
void jw_fill_memory(void *memory, size_t bytes, const jw_fill *fill, uint32_t seed);

/* --- arithmetic --------------------------------------------------------------------------- */

/* Greatest common divisor; that of 0 and a is a. */
uint32_t jw_greatest_common_divisor(uint32_t a, uint32_t b);

/* --- one operation ------------------------------------------------------------------------ */

/* A buffer that an operation reads or writes. */
typedef struct {
    size_t bytes;
    jw_fill fill;
    int in_place; /* of a written operand: index of the read operand that it overwrites, or -1 */
} jw_operand;

/* An operation to measure. */
typedef struct {
    const jw_kernel *kernel;
    int32_t attributes[JW_MAX_ATTRIBUTES];
    float scalars[JW_MAX_SCALARS];
    jw_operand reads[JW_MAX_OPERANDS];
    jw_operand writes[JW_MAX_OPERANDS];
    uint8_t read_count;
    uint8_t write_count;
    uint32_t copies; /* copies of all operands, used in turn by executions (1: warm caches) */
} jw_op;

/* An operation laid out in an arena, ready to be executed. */
typedef struct {
    const jw_op *op;
    unsigned char *operands; /* the first copy */
    size_t copy_bytes;
    size_t read_offset[JW_MAX_OPERANDS];
    size_t write_offset[JW_MAX_OPERANDS];
    const void *reads[JW_MAX_OPERANDS];
    void *writes[JW_MAX_OPERANDS];
    jw_call call;
    uint32_t copy;
    uint32_t stride; /* from copy to copy; coprime to copies; prefetchers cannot predict it */
} jw_op_run;

/* Empty the arena, place the operands in it, and fill them. Returns NULL, or why it failed. */
const char *jw_op_prepare(jw_op_run *run, const jw_op *op, jw_arena *arena);

/* Execute an operation `count` times; `context` is a jw_op_run. */
void jw_op_execute(void *context, uint64_t count);

/* --- a training step ---------------------------------------------------------------------- */

/* A training step as a list of calls. Every buffer exists once, and all calls share one workspace,
 * as in a real step. The tables are in the arena, before the buffers. */
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

/* Begin a step with so many buffers and calls. This and the functions below that return a string
 * return NULL, or why they failed. */
const char *jw_step_begin(jw_step *step, jw_arena *arena, uint32_t buffers, uint32_t calls);

/* Add a buffer and fill it. */
const char *jw_step_buffer(jw_step *step, size_t bytes, const jw_fill *fill);

/* A call of a step. */
typedef struct {
    const jw_kernel *kernel;
    int32_t attributes[JW_MAX_ATTRIBUTES];
    float scalars[JW_MAX_SCALARS];
    uint32_t reads[JW_MAX_OPERANDS]; /* indices of buffers */
    uint32_t writes[JW_MAX_OPERANDS];
    uint8_t read_count;
    uint8_t write_count;
} jw_step_call;

/* Add a call. */
const char *jw_step_add(jw_step *step, const jw_step_call *call);

/* True when all announced buffers and calls have been added. */
bool jw_step_complete(const jw_step *step);

/* Take the workspace, after the last call. */
const char *jw_step_end(jw_step *step);

/* Execute a whole step `count` times; `context` is a jw_step. */
void jw_step_execute(void *context, uint64_t count);

/* --- windows ------------------------------------------------------------------------------ */

/* Executes something `count` times. */
typedef void jw_execute(void *context, uint64_t count);

/* Length of a window. */
typedef struct {
    uint64_t first;  /* executions in the first window, from an earlier block; 0: calibrate */
    uint64_t min_ns; /* least length of a window, in running time */
    uint64_t max_ns; /* greatest length, unless a single execution is longer */
} jw_limits;

/* A measured window. */
typedef struct {
    uint64_t executions;
    uint64_t start_ns, end_ns; /* by jw_clock_ns */
    uint64_t running_ns;       /* without pre-emption */
    uint64_t frequency_before_khz, frequency_after_khz;
    uint32_t tries; /* number of windows measured, of which this is the least disturbed */
} jw_window;

/* Tolerated change of the frequency, and tolerated share of pre-emption, in a window. */
#define JW_FREQUENCY_TOLERANCE_PERCENT 2
#define JW_PREEMPTION_TOLERANCE_PERCENT 2

/* Measure a window. A disturbed window, beyond a tolerance, is measured again, up to `tries` times
 * in all; the least disturbed window is returned. */
jw_window jw_measure(jw_execute *execute, void *context, const jw_limits *limits, uint32_t tries);

#endif

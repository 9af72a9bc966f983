#include "core.h"

#include <string.h>

#include "platform.h"

/* --- memory ------------------------------------------------------------------------------- */

static size_t aligned(size_t bytes) {
    return (bytes + JW_ALIGNMENT - 1) / JW_ALIGNMENT * JW_ALIGNMENT;
}

/* Take bytes; false if they do not fit. */
static bool reserve(jw_arena *arena, size_t bytes) {
    const size_t left = arena->size - arena->used;
    const bool fits = bytes <= left && aligned(bytes) <= left;
    arena->used += fits ? aligned(bytes) : 0;
    return fits;
}

void *jw_arena_take(jw_arena *arena, size_t bytes) {
    unsigned char *next = arena->base + arena->used;
    return reserve(arena, bytes) ? next : NULL;
}

/* Take count * element_bytes bytes; NULL if they do not fit, also if the product overflows. */
static void *take_table(jw_arena *arena, size_t count, size_t element_bytes) {
    const bool fits = element_bytes == 0 || count <= arena->size / element_bytes;
    return fits ? jw_arena_take(arena, count * element_bytes) : NULL;
}

static uint32_t next_random(uint32_t *state) { /* xorshift32, Marsaglia 2003 */
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

void jw_fill_memory(void *memory, size_t bytes, const jw_fill *fill, uint32_t seed) {
    uint32_t state = seed * 2654435769u + 1u;
    state = state ? state : 1u;
    const size_t count = bytes / 4;
    float *real = memory;
    int32_t *index = memory;
    switch (fill->kind) {
    case JW_FILL_ZERO:
        memset(memory, 0, bytes);
        break;
    case JW_FILL_SIGNED: {
        const float scale = fill->amplitude / 2147483648.0f;
        for (size_t i = 0; i < count; i++) {
            real[i] = scale * (float)(int32_t)next_random(&state);
        }
        break;
    }
    case JW_FILL_POSITIVE:
        for (size_t i = 0; i < count; i++) {
            real[i] = 0.5f + (float)(next_random(&state) >> 8) / 16777216.0f;
        }
        break;
    case JW_FILL_INDEX:
        for (size_t i = 0; i < count; i++) {
            index[i] = (int32_t)((uint64_t)next_random(&state) * fill->index_bound >> 32);
        }
        break;
    }
}

/* --- one operation ------------------------------------------------------------------------ */

uint32_t jw_greatest_common_divisor(uint32_t a, uint32_t b) {
    while (b) {
        const uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The golden section of `copies`, or the next number after it that is coprime to `copies`. */
static uint32_t stride_through(uint32_t copies) {
    uint32_t stride = (uint32_t)((uint64_t)copies * 618 / 1000);
    stride = stride ? stride : 1;
    while (jw_greatest_common_divisor(copies, stride) != 1) {
        stride++;
    }
    return stride;
}

/* The copy that is used after the one in use. */
static uint32_t next_copy(const jw_op_run *run) {
    const uint32_t next = run->copy + run->stride;
    return next >= run->op->copies ? next - run->op->copies : next;
}

static unsigned char *copy_in_use(const jw_op_run *run) {
    return run->operands + run->copy * run->copy_bytes;
}

/* Place the operands of a copy one after the other; false if they take more than `most` bytes. Sums
 * of sizes never exceed that, so that they cannot overflow. */
static bool lay_out(jw_op_run *run, const jw_op *op, size_t most) {
    jw_arena copy = {NULL, most, 0};
    for (size_t i = 0; i < op->read_count; i++) {
        run->read_offset[i] = copy.used;
        if (!reserve(&copy, op->reads[i].bytes)) {
            return false;
        }
    }
    for (size_t i = 0; i < op->write_count; i++) {
        const int shared = op->writes[i].in_place;
        run->write_offset[i] = shared >= 0 ? run->read_offset[shared] : copy.used;
        if (shared < 0 && !reserve(&copy, op->writes[i].bytes)) {
            return false;
        }
    }
    run->copy_bytes = copy.used;
    return true;
}

static const char op_too_large[] = "workspace and operands do not fit into the arena";

const char *jw_op_prepare(jw_op_run *run, const jw_op *op, jw_arena *arena) {
    const jw_kernel *kernel = op->kernel;

    run->op = op;
    if (!lay_out(run, op, arena->size)) {
        return op_too_large;
    }
    run->copy = 0;
    run->stride = stride_through(op->copies);

    const size_t workspace_bytes =
        kernel->workspace_bytes ? kernel->workspace_bytes(op->attributes) : 0;
    arena->used = 0;
    void *workspace = jw_arena_take(arena, workspace_bytes);
    run->operands = take_table(arena, op->copies, run->copy_bytes);
    if (!workspace || !run->operands) {
        return op_too_large;
    }

    memset(workspace, 0, workspace_bytes);
    memset(run->operands, 0, run->copy_bytes);
    for (size_t i = 0; i < op->read_count; i++) {
        jw_fill_memory(run->operands + run->read_offset[i], op->reads[i].bytes, &op->reads[i].fill,
                       (uint32_t)i + 1);
    }
    /* In the order of use, so that the caches have dropped those that are used first. */
    for (uint32_t made = 1; made < op->copies; made++) {
        const unsigned char *source = copy_in_use(run);
        run->copy = next_copy(run);
        memcpy(copy_in_use(run), source, run->copy_bytes);
    }
    run->copy = 0;

    run->call.attributes = op->attributes;
    run->call.scalars = op->scalars;
    run->call.reads = run->reads;
    run->call.writes = run->writes;
    run->call.workspace = workspace;
    return NULL;
}

void jw_op_execute(void *context, uint64_t count) {
    jw_op_run *run = context;
    const jw_op *op = run->op;
    for (; count; count--) {
        unsigned char *copy = copy_in_use(run);
        for (size_t i = 0; i < op->read_count; i++) {
            run->reads[i] = copy + run->read_offset[i];
        }
        for (size_t i = 0; i < op->write_count; i++) {
            run->writes[i] = copy + run->write_offset[i];
        }
        op->kernel->run(&run->call);
        run->copy = next_copy(run);
    }
}

/* --- a training step ---------------------------------------------------------------------- */

static const char arena_full[] = "the step does not fit into the arena";

const char *jw_step_begin(jw_step *step, jw_arena *arena, uint32_t buffers, uint32_t calls) {
    memset(step, 0, sizeof *step);
    arena->used = 0;
    step->arena = arena;
    step->buffer_capacity = buffers;
    step->call_capacity = calls;
    step->buffers = take_table(arena, buffers, sizeof *step->buffers);
    step->buffer_bytes = take_table(arena, buffers, sizeof *step->buffer_bytes);
    step->calls = take_table(arena, calls, sizeof *step->calls);
    step->kernels = take_table(arena, calls, sizeof *step->kernels);
    const bool fits = step->buffers && step->buffer_bytes && step->calls && step->kernels;
    return fits ? NULL : arena_full;
}

const char *jw_step_buffer(jw_step *step, size_t bytes, const jw_fill *fill) {
    if (step->buffer_count == step->buffer_capacity) {
        return "more buffers than announced";
    }
    void *memory = jw_arena_take(step->arena, bytes);
    if (!memory) {
        return arena_full;
    }
    jw_fill_memory(memory, bytes, fill, step->buffer_count + 1);
    step->buffers[step->buffer_count] = memory;
    step->buffer_bytes[step->buffer_count] = bytes;
    step->buffer_count++;
    return NULL;
}

const char *jw_step_add(jw_step *step, const jw_step_call *source) {
    const jw_kernel *kernel = source->kernel;
    jw_arena *arena = step->arena;
    if (step->call_count == step->call_capacity) {
        return "more calls than announced";
    }
    int32_t *attributes = take_table(arena, kernel->attribute_count, sizeof *attributes);
    float *scalars = take_table(arena, kernel->scalar_count, sizeof *scalars);
    const void **reads = take_table(arena, source->read_count, sizeof *reads);
    void **writes = take_table(arena, source->write_count, sizeof *writes);
    if (!attributes || !scalars || !reads || !writes) {
        return arena_full;
    }
    memcpy(attributes, source->attributes, kernel->attribute_count * sizeof *attributes);
    memcpy(scalars, source->scalars, kernel->scalar_count * sizeof *scalars);
    for (size_t i = 0; i < source->read_count; i++) {
        if (source->reads[i] >= step->buffer_count) {
            return "a call reads a buffer that does not exist";
        }
        reads[i] = step->buffers[source->reads[i]];
    }
    for (size_t i = 0; i < source->write_count; i++) {
        if (source->writes[i] >= step->buffer_count) {
            return "a call writes a buffer that does not exist";
        }
        writes[i] = step->buffers[source->writes[i]];
    }
    const size_t workspace_bytes =
        kernel->workspace_bytes ? kernel->workspace_bytes(attributes) : 0;
    if (workspace_bytes > step->workspace_bytes) {
        step->workspace_bytes = workspace_bytes;
    }
    step->kernels[step->call_count] = kernel;
    step->calls[step->call_count] = (jw_call){attributes, scalars, reads, writes, NULL};
    step->call_count++;
    return NULL;
}

bool jw_step_complete(const jw_step *step) {
    return step->buffer_count == step->buffer_capacity && step->call_count == step->call_capacity;
}

const char *jw_step_end(jw_step *step) {
    void *workspace = jw_arena_take(step->arena, step->workspace_bytes);
    if (!workspace) {
        return arena_full;
    }
    memset(workspace, 0, step->workspace_bytes);
    for (uint32_t i = 0; i < step->call_count; i++) {
        step->calls[i].workspace = workspace;
    }
    return NULL;
}

void jw_step_execute(void *context, uint64_t count) {
    const jw_step *step = context;
    for (; count; count--) {
        for (uint32_t i = 0; i < step->call_count; i++) {
            step->kernels[i]->run(&step->calls[i]);
        }
    }
}

/* --- windows ------------------------------------------------------------------------------ */

static jw_window run_window(jw_execute *execute, void *context, uint64_t count) {
    jw_window window = {.executions = count};
    window.frequency_before_khz = jw_frequency_khz();
    jw_sync_line(true);
    const uint64_t running_ns = jw_running_ns();
    window.start_ns = jw_clock_ns();
    execute(context, count);
    window.end_ns = jw_clock_ns();
    window.running_ns = jw_running_ns() - running_ns;
    jw_sync_line(false);
    window.frequency_after_khz = jw_frequency_khz();
    return window;
}

static uint64_t length_ns(const jw_window *window) {
    return window->end_ns - window->start_ns;
}

/* Executions for a window of 1.1 * min_ns, extrapolated from a shorter window of `count`
 * executions: at least 2 and at most 100 times `count`, and limited by max_ns, but never less than
 * `count`. Lengths are running time, without pre-emption. */
static uint64_t grown(uint64_t count, uint64_t running_ns, const jw_limits *limits) {
    const double execution_ns = (double)(running_ns ? running_ns : 1) / (double)count;
    double next = 1.1 * (double)limits->min_ns / execution_ns + 1;
    next = next < 2.0 * (double)count ? 2.0 * (double)count : next;
    next = next > 100.0 * (double)count ? 100.0 * (double)count : next;
    const double most = (double)limits->max_ns / execution_ns;
    next = next > most ? most : next;
    return next > (double)count ? (uint64_t)next : count;
}

/* Find the executions of a window: starting with one, at least double them until a window reaches a
 * quarter of min_ns, then extrapolate. */
static uint64_t calibrate(jw_execute *execute, void *context, const jw_limits *limits) {
    uint64_t count = 1;
    for (;;) {
        const jw_window window = run_window(execute, context, count);
        if (window.running_ns >= limits->min_ns) {
            return count;
        }
        const uint64_t next = grown(count, window.running_ns, limits);
        if (next == count || window.running_ns >= limits->min_ns / 4) {
            return next;
        }
        count = next;
    }
}

static uint64_t preempted_ns(const jw_window *window) {
    const uint64_t length = length_ns(window);
    return length > window->running_ns ? length - window->running_ns : 0;
}

static bool frequency_steady(const jw_window *window) {
    const uint64_t a = window->frequency_before_khz, b = window->frequency_after_khz;
    return (a > b ? a - b : b - a) * 100 <= a * JW_FREQUENCY_TOLERANCE_PERCENT;
}

static bool undisturbed(const jw_window *window) {
    return frequency_steady(window) &&
           preempted_ns(window) * 100 <= length_ns(window) * JW_PREEMPTION_TOLERANCE_PERCENT;
}

static bool less_disturbed(const jw_window *a, const jw_window *b) {
    if (frequency_steady(a) != frequency_steady(b)) {
        return frequency_steady(a);
    }
    return (double)preempted_ns(a) / (double)(length_ns(a) + 1) <
           (double)preempted_ns(b) / (double)(length_ns(b) + 1);
}

jw_window jw_measure(jw_execute *execute, void *context, const jw_limits *limits, uint32_t tries) {
    uint64_t count = limits->first;
    if (count) {
        execute(context, 1); /* warm up code and operands, as a calibration would */
    } else {
        count = calibrate(execute, context, limits);
    }
    jw_window best = {0};
    for (uint32_t done = 0; done < tries;) {
        jw_window window = run_window(execute, context, count);
        if (window.running_ns < limits->min_ns) {
            const uint64_t next = grown(count, window.running_ns, limits);
            if (next > count) {
                count = next;
                continue;
            }
        }
        done++;
        if (done == 1 || less_disturbed(&window, &best)) {
            best = window;
        }
        best.tries = done;
        if (undisturbed(&window)) {
            break;
        }
    }
    return best;
}

#include "plan.h"

#include <string.h>

#define MOST_COUNT 1000000000u
#define MOST_NS UINT64_C(3600000000000)

static char *list_value(jw_text *text, const char *key) {
    char *value = jw_text_value(text, key);
    return strcmp(value, "-") == 0 ? value + 1 : value;
}

static void read_limits(jw_text *text, jw_limits *limits) {
    limits->first = jw_text_number(text, "first", 0, UINT64_C(1) << 40);
    limits->min_ns = jw_text_number(text, "min_ns", 1, MOST_NS);
    limits->max_ns = jw_text_number(text, "max_ns", 1, MOST_NS);
    if (limits->max_ns < limits->min_ns) {
        jw_text_fail(text, "max_ns", "is below min_ns");
    }
}

static const jw_kernel *read_kernel(jw_text *text) {
    const char *kind = jw_text_value(text, "kind");
    const jw_kernel *kernel = text->error ? NULL : jw_find_kernel(kind);
    if (!kernel) {
        jw_text_fail(text, "kind", "names no kernel of this library");
    }
    return kernel;
}

static void read_attributes(jw_text *text, const jw_kernel *kernel, int32_t *attributes) {
    char *list = list_value(text, "attributes");
    uint8_t count = 0;
    for (char *item; kernel && (item = jw_text_item(&list, ',')); count++) {
        if (count == JW_MAX_ATTRIBUTES || !jw_parse_int32(item, &attributes[count])) {
            jw_text_fail(text, "attributes", "is not a list of 32-bit numbers");
            return;
        }
    }
    if (kernel && count != kernel->attribute_count) {
        jw_text_fail(text, "attributes", "differ in number from the kernel's");
    }
}

static void read_scalars(jw_text *text, const jw_kernel *kernel, float *scalars) {
    char *list = list_value(text, "scalars");
    uint8_t count = 0;
    for (char *item; kernel && (item = jw_text_item(&list, ',')); count++) {
        if (count == JW_MAX_SCALARS || !jw_parse_float_bits(item, &scalars[count])) {
            jw_text_fail(text, "scalars", "is not a list of numbers of eight hexadecimal digits");
            return;
        }
    }
    if (kernel && count != kernel->scalar_count) {
        jw_text_fail(text, "scalars", "differ in number from the kernel's");
    }
}

static void parse_fill(jw_text *text, const char *key, char *value, jw_fill *fill) {
    const char *name = jw_text_item(&value, ':');
    uint64_t bound = 0;
    bool valid = true;
    *fill = (jw_fill){JW_FILL_ZERO, 0.0f, 0};
    if (name && strcmp(name, "signed") == 0) {
        fill->kind = JW_FILL_SIGNED;
        valid = jw_parse_float_bits(value, &fill->amplitude);
    } else if (name && strcmp(name, "positive") == 0) {
        fill->kind = JW_FILL_POSITIVE;
        valid = !*value;
    } else if (name && strcmp(name, "index") == 0) {
        fill->kind = JW_FILL_INDEX;
        valid = jw_parse_number(value, INT32_MAX, &bound) && bound > 0;
        fill->index_bound = (uint32_t)bound;
    } else {
        valid = name && strcmp(name, "zero") == 0 && !*value;
    }
    if (!valid) {
        jw_text_fail(text, key, "has an unknown fill");
    }
}

/* Size in bytes: whole elements, and no more than any arena has. */
static size_t parse_bytes(jw_text *text, const char *key, const char *digits) {
    uint64_t bytes = 0;
    if (!digits || !jw_parse_number(digits, SIZE_MAX / 2, &bytes) || !bytes || bytes % 4) {
        jw_text_fail(text, key,
                     "has a size that is not a positive multiple of 4 bytes, or too large");
        return 0;
    }
    return (size_t)bytes;
}

static uint8_t read_operands(jw_text *text, jw_operand *operands) {
    char *list = list_value(text, "reads");
    uint8_t count = 0;
    for (char *item; (item = jw_text_item(&list, ',')); count++) {
        if (count == JW_MAX_OPERANDS) {
            jw_text_fail(text, "reads", "lists too many operands");
            return 0;
        }
        operands[count].bytes = parse_bytes(text, "reads", jw_text_item(&item, ':'));
        operands[count].in_place = -1;
        parse_fill(text, "reads", item, &operands[count].fill);
    }
    return count;
}

static uint8_t written_operands(jw_text *text, jw_operand *operands, const jw_op *op) {
    char *list = list_value(text, "writes");
    uint8_t count = 0;
    for (char *item; (item = jw_text_item(&list, ',')); count++) {
        uint64_t shared;
        if (count == JW_MAX_OPERANDS) {
            jw_text_fail(text, "writes", "lists too many operands");
            return 0;
        }
        operands[count] = (jw_operand){0, {JW_FILL_ZERO, 0.0f, 0}, -1};
        if (*item != '@') {
            operands[count].bytes = parse_bytes(text, "writes", item);
        } else if (jw_parse_number(item + 1, JW_MAX_OPERANDS, &shared) && shared < op->read_count) {
            operands[count].bytes = op->reads[shared].bytes;
            operands[count].in_place = (int)shared;
        } else {
            jw_text_fail(text, "writes", "overwrites an operand that is not read");
        }
    }
    return count;
}

static uint8_t read_indices(jw_text *text, const char *key, uint32_t *indices) {
    char *list = list_value(text, key);
    uint8_t count = 0;
    for (char *item; (item = jw_text_item(&list, ',')); count++) {
        uint64_t index;
        if (count == JW_MAX_OPERANDS || !jw_parse_number(item, MOST_COUNT, &index)) {
            jw_text_fail(text, key, "is not a list of buffers");
            return 0;
        }
        indices[count] = (uint32_t)index;
    }
    return count;
}

bool jw_plan_op(jw_text *text, uint32_t *id, jw_limits *limits, jw_op *op) {
    *id = (uint32_t)jw_text_number(text, "id", 0, MOST_COUNT);
    op->copies = (uint32_t)jw_text_number(text, "copies", 1, MOST_COUNT);
    read_limits(text, limits);
    op->kernel = read_kernel(text);
    read_attributes(text, op->kernel, op->attributes);
    read_scalars(text, op->kernel, op->scalars);
    op->read_count = read_operands(text, op->reads);
    op->write_count = written_operands(text, op->writes, op);
    return jw_text_end(text);
}

bool jw_plan_step(jw_text *text, uint32_t *id, jw_limits *limits, uint32_t *buffers,
                  uint32_t *calls) {
    *id = (uint32_t)jw_text_number(text, "id", 0, MOST_COUNT);
    read_limits(text, limits);
    *buffers = (uint32_t)jw_text_number(text, "buffers", 1, MOST_COUNT);
    *calls = (uint32_t)jw_text_number(text, "calls", 1, MOST_COUNT);
    return jw_text_end(text);
}

bool jw_plan_buffer(jw_text *text, size_t *bytes, jw_fill *fill) {
    *bytes = parse_bytes(text, "bytes", jw_text_value(text, "bytes"));
    parse_fill(text, "fill", jw_text_value(text, "fill"), fill);
    return jw_text_end(text);
}

bool jw_plan_call(jw_text *text, jw_step_call *call) {
    call->kernel = read_kernel(text);
    read_attributes(text, call->kernel, call->attributes);
    read_scalars(text, call->kernel, call->scalars);
    call->read_count = read_indices(text, "reads", call->reads);
    call->write_count = read_indices(text, "writes", call->writes);
    return jw_text_end(text);
}

bool jw_plan_workspace(jw_text *text, size_t *bytes) {
    int32_t attributes[JW_MAX_ATTRIBUTES];
    const jw_kernel *kernel = read_kernel(text);
    read_attributes(text, kernel, attributes);
    const bool read_well = jw_text_end(text);
    *bytes =
        read_well && kernel && kernel->workspace_bytes ? kernel->workspace_bytes(attributes) : 0;
    return read_well;
}

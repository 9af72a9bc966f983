/* Embedding: rows of a table, selected by index. */
#include "kernels.h"

typedef struct {
    jw_index rows, features;
    jw_index first, count; /* rows of the table */
    int32_t padding;       /* index whose row has no gradient; negative if there is none */
} shape;

static shape whole(const int32_t *a, int32_t padding) {
    const shape s = {a[0], a[2], 0, a[1], padding};
    return s;
}

/* `range`: first row and number of rows. */
static shape part(const int32_t *a, const int32_t *range, int32_t padding) {
    const shape s = {a[0], a[2], range[0], range[1], padding};
    return s;
}

static void forward(shape s, const jw_call *call) {
    const int32_t *indices = call->reads[0];
    const float *table = call->reads[1];
    float *output = call->writes[0];
    for (jw_index r = 0; r < s.rows; r++) {
        const jw_index row = indices[r] - s.first;
        if (row >= 0 && row < s.count) {
            memcpy(output + r * s.features, table + row * s.features,
                   (size_t)s.features * sizeof(float));
        }
    }
}

static void part_forward(shape s, const jw_call *call) {
    if (s.first > 0) {
        jw_take_over(call->writes[0], call->reads[2], s.rows * s.features);
    }
    forward(s, call);
}

/* The gradient is dense: rows of the table that no index selects are zero. */
static void gradient(shape s, const jw_call *call) {
    const int32_t *indices = call->reads[0];
    const float *restrict output_gradient = call->reads[1];
    float *restrict table_gradient = call->writes[0];
    jw_fill(table_gradient, 0.0f, s.count * s.features);
    for (jw_index r = 0; r < s.rows; r++) {
        const jw_index row = indices[r] - s.first;
        if (indices[r] == s.padding || row < 0 || row >= s.count) {
            continue;
        }
        for (jw_index f = 0; f < s.features; f++) {
            table_gradient[row * s.features + f] += output_gradient[r * s.features + f];
        }
    }
}

void jw_embedding_forward(const jw_call *call) {
    forward(whole(call->attributes, -1), call);
}

void jw_embedding_part_forward(const jw_call *call) {
    part_forward(part(call->attributes, call->attributes + 3, -1), call);
}

void jw_embedding_padded_part_forward(const jw_call *call) {
    part_forward(part(call->attributes, call->attributes + 4, -1), call);
}

void jw_embedding_parameter_gradient(const jw_call *call) {
    gradient(whole(call->attributes, -1), call);
}

void jw_embedding_padded_parameter_gradient(const jw_call *call) {
    gradient(whole(call->attributes, call->attributes[3]), call);
}

void jw_embedding_part_parameter_gradient(const jw_call *call) {
    gradient(part(call->attributes, call->attributes + 3, -1), call);
}

void jw_embedding_padded_part_parameter_gradient(const jw_call *call) {
    gradient(part(call->attributes, call->attributes + 4, call->attributes[3]), call);
}

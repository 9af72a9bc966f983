/* Copies of elements at regular distances: parts, transposes and repetitions of a tensor. */
#include "kernels.h"

enum { SOURCE, OFFSET, SIZES, AXES = 6, STRIDES = SIZES + AXES };

/* Where a row of the copy begins in the source; rows are along the last axis. */
static jw_index begin_of(const int32_t *attributes, jw_index row) {
    jw_index at = attributes[OFFSET];
    for (int axis = AXES - 2; axis >= 0; axis--) {
        const jw_index size = attributes[SIZES + axis];
        at += row % size * attributes[STRIDES + axis];
        row /= size;
    }
    return at;
}

static jw_index rows_of(const int32_t *attributes) {
    jw_index rows = 1;
    for (int axis = 0; axis < AXES - 1; axis++) {
        rows *= attributes[SIZES + axis];
    }
    return rows;
}

void jw_strided_copy_forward(const jw_call *call) {
    const int32_t *attributes = call->attributes;
    const jw_index rows = rows_of(attributes);
    const jw_index columns = attributes[SIZES + AXES - 1], stride = attributes[STRIDES + AXES - 1];
    const float *input = call->reads[0];
    float *output = call->writes[0];
    for (jw_index r = 0; r < rows; r++, output += columns) {
        const float *x = input + begin_of(attributes, r);
        if (stride == 1) {
            JW_INDEPENDENT
            for (jw_index i = 0; i < columns; i++) {
                output[i] = x[i];
            }
        } else {
            for (jw_index i = 0; i < columns; i++) {
                output[i] = x[i * stride];
            }
        }
    }
}

/* An element that was copied several times gets the sum of the gradients, one not copied zero. */
void jw_strided_copy_input_gradient(const jw_call *call) {
    const int32_t *attributes = call->attributes;
    const jw_index rows = rows_of(attributes);
    const jw_index columns = attributes[SIZES + AXES - 1], stride = attributes[STRIDES + AXES - 1];
    const float *output_gradient = call->reads[0];
    float *input_gradient = call->writes[0];
    jw_fill(input_gradient, 0.0f, attributes[SOURCE]);
    for (jw_index r = 0; r < rows; r++, output_gradient += columns) {
        float *dx = input_gradient + begin_of(attributes, r);
        for (jw_index i = 0; i < columns; i++) {
            dx[i * stride] += output_gradient[i];
        }
    }
}

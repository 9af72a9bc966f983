/* Whole numbers that are computed as float32, and sums up to each element. */
#include "kernels.h"

void jw_from_integers_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const int32_t *integers = call->reads[0];
    float *output = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        output[i] = (float)integers[i];
    }
}

void jw_to_indices_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float most = call->attributes[1] > 0 ? (float)(call->attributes[1] - 1) : 16777216.0f;
    const float least = call->attributes[1] > 0 ? 0.0f : -16777216.0f;
    const float *input = call->reads[0];
    int32_t *indices = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float above = input[i] > least ? input[i] : least; /* also of NaN */
        indices[i] = (int32_t)(above < most ? above : most);
    }
}

void jw_equal_number_forward(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float number = call->scalars[0];
    const float *input = call->reads[0];
    float *output = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        output[i] = input[i] == number ? 1.0f : 0.0f;
    }
}

/* y[first] = x[first], y[next] = y[before] + x[next], with rows that are `step` apart */
static void accumulate(const float *x, float *y, jw_index size, jw_index inner, jw_index step) {
    if (y != x) {
        memcpy(y, x, (size_t)inner * sizeof(float));
    }
    for (jw_index s = 1; s < size; s++) {
        const float *before = y;
        x += step;
        y += step;
        JW_INDEPENDENT
        for (jw_index i = 0; i < inner; i++) {
            y[i] = before[i] + x[i];
        }
    }
}

void jw_cumulative_sum_forward(const jw_call *call) {
    const jw_index outer = call->attributes[0], size = call->attributes[1];
    const jw_index inner = call->attributes[2];
    for (jw_index o = 0; o < outer; o++) {
        const jw_index first = o * size * inner;
        accumulate((const float *)call->reads[0] + first, (float *)call->writes[0] + first, size,
                   inner, inner);
    }
}

void jw_cumulative_sum_input_gradient(const jw_call *call) {
    const jw_index outer = call->attributes[0], size = call->attributes[1];
    const jw_index inner = call->attributes[2];
    for (jw_index o = 0; o < outer; o++) {
        const jw_index last = ((o + 1) * size - 1) * inner;
        accumulate((const float *)call->reads[0] + last, (float *)call->writes[0] + last, size,
                   inner, -inner);
    }
}

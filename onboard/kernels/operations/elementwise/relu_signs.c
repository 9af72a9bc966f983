/* ReLU's gradient from one bit for each element of its output. */
#include "kernels.h"

enum { WORD = 32 };

/* Bit i of word w is 1 if the gradient of element 32 w + i passes: if it is positive or NaN. Bits after
 * the last element are 0. */
void jw_relu_signs_pack(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float *restrict y = call->reads[0];
    uint32_t *restrict signs = call->writes[0];
    for (jw_index first = 0; first < elements; first += WORD) {
        const jw_index count = jw_min(elements - first, WORD);
        uint32_t word = 0;
        for (jw_index i = 0; i < count; i++) {
            word |= (uint32_t)(y[first + i] <= 0.0f ? 0 : 1) << i;
        }
        signs[first / WORD] = word;
    }
}

void jw_relu_signs_input_gradient(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const uint32_t *signs = call->reads[0];
    const float *dy = call->reads[1];
    float *dx = call->writes[0];
    for (jw_index first = 0; first < elements; first += WORD) {
        const jw_index count = jw_min(elements - first, WORD);
        const uint32_t word = signs[first / WORD];
        JW_INDEPENDENT
        for (jw_index i = 0; i < count; i++) {
            dx[first + i] = word >> i & 1 ? dy[first + i] : 0.0f;
        }
    }
}

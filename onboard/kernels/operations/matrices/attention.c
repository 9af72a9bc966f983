/* The batched matrix products of attention. Heads are side by side in a row of
 * [batch, sequence, heads * head_features]; the square [sequence, sequence] of each head is
 * contiguous. */
#include "exponential.h"
#include "kernels.h"

typedef struct {
    jw_index batch, sequence, heads, features, row;
} shape;

static shape shape_of(const int32_t *a) {
    const shape s = {a[0], a[1], a[2], a[3], (jw_index)a[2] * a[3]};
    return s;
}

static size_t bytes(jw_index floats) {
    return (size_t)floats * sizeof(float);
}

/* square = alpha * left * right^T for every head. */
static void multiply_rows(const jw_call *call, float alpha) {
    const shape s = shape_of(call->attributes);
    const float *left = call->reads[0], *right = call->reads[1];
    float *square = call->writes[0];
    for (jw_index b = 0; b < s.batch; b++) {
        for (jw_index h = 0; h < s.heads; h++) {
            const jw_index head = b * s.sequence * s.row + h * s.features;
            jw_matmul(s.sequence, s.sequence, s.features, alpha, jw_plain(left + head, s.row),
                      jw_transposed(right + head, s.row), 0.0f,
                      square + (b * s.heads + h) * s.sequence * s.sequence, s.sequence,
                      call->workspace);
        }
    }
}

/* output = alpha * square * rows, or alpha * square^T * rows, for every head. */
static void multiply_square(const jw_call *call, float alpha, int transposed) {
    const shape s = shape_of(call->attributes);
    const float *square = call->reads[0], *rows = call->reads[1];
    float *output = call->writes[0];
    for (jw_index b = 0; b < s.batch; b++) {
        for (jw_index h = 0; h < s.heads; h++) {
            const jw_index head = b * s.sequence * s.row + h * s.features;
            const jw_matrix left = {square + (b * s.heads + h) * s.sequence * s.sequence,
                                    s.sequence, transposed};
            jw_matmul(s.sequence, s.features, s.sequence, alpha, left, jw_plain(rows + head, s.row),
                      0.0f, output + head, s.row, call->workspace);
        }
    }
}

static float scale_of(const jw_call *call) {
    return 1.0f / sqrtf((float)call->attributes[3]);
}

size_t jw_attention_to_square_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return bytes(jw_matmul_workspace(s.sequence, s.features));
}

size_t jw_attention_to_rows_workspace(const int32_t *attributes) {
    const shape s = shape_of(attributes);
    return bytes(jw_matmul_workspace(s.features, s.sequence));
}

void jw_attention_scores_forward(const jw_call *call) {
    multiply_rows(call, scale_of(call));
}

void jw_attention_scores_query_gradient(const jw_call *call) {
    multiply_square(call, scale_of(call), 0);
}

void jw_attention_scores_key_gradient(const jw_call *call) {
    multiply_square(call, scale_of(call), 1);
}

void jw_attention_context_forward(const jw_call *call) {
    multiply_square(call, 1.0f, 0);
}

void jw_attention_context_weights_gradient(const jw_call *call) {
    multiply_rows(call, 1.0f);
}

void jw_attention_context_value_gradient(const jw_call *call) {
    multiply_square(call, 1.0f, 1);
}

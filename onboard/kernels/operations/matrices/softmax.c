/* Softmax over rows, alone and with cross entropy. Subtracts a row's maximum before exp. */
#include "exponential.h"
#include "kernels.h"
#include "logarithm.h"

/* y = factor * softmax(x); x and y may be the same. */
static void scaled_softmax(const float *x, float *y, jw_index columns, float factor) {
    const float maximum = jw_maximum(x, columns);
    JW_INDEPENDENT
    for (jw_index i = 0; i < columns; i++) {
        y[i] = jw_exp(x[i] - maximum);
    }
    const float scale = factor / jw_sum(y, columns);
    for (jw_index i = 0; i < columns; i++) {
        y[i] *= scale;
    }
}

void jw_softmax_forward(const jw_call *call) {
    const jw_index rows = call->attributes[0], columns = call->attributes[1];
    const float *input = call->reads[0];
    float *output = call->writes[0];
    for (jw_index r = 0; r < rows; r++) {
        scaled_softmax(input + r * columns, output + r * columns, columns, 1.0f);
    }
}

/* dx = y * (dy - sum(y * dy)) */
void jw_softmax_input_gradient(const jw_call *call) {
    const jw_index rows = call->attributes[0], columns = call->attributes[1];
    for (jw_index r = 0; r < rows; r++) {
        const float *y = (const float *)call->reads[0] + r * columns;
        const float *dy = (const float *)call->reads[1] + r * columns;
        float *dx = (float *)call->writes[0] + r * columns;
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        JW_ADD_PRODUCTS(lanes, columns, y[i], dy[i]);
        const float projection = jw_fold_lanes(lanes);
        JW_INDEPENDENT
        for (jw_index i = 0; i < columns; i++) {
            dx[i] = y[i] * (dy[i] - projection);
        }
    }
}

/* Mean over rows of log(sum(exp(x))) - x[label], times its share of the loss. */
void jw_softmax_cross_entropy_forward(const jw_call *call) {
    const jw_index rows = call->attributes[0], classes = call->attributes[1];
    const int32_t *labels = call->reads[1];
    float total = 0.0f;
    for (jw_index r = 0; r < rows; r++) {
        const float *x = (const float *)call->reads[0] + r * classes;
        const float maximum = jw_maximum(x, classes);
        float lanes[JW_LANES];
        jw_clear_lanes(lanes);
        JW_ADD_PRODUCTS(lanes, classes, jw_exp(x[i] - maximum), 1.0f);
        total += jw_log(jw_fold_lanes(lanes)) - (x[labels[r]] - maximum);
    }
    *(float *)call->writes[0] = call->scalars[0] * (total / (float)rows);
}

/* (softmax(x) - one(label)) / rows, times the share of the loss */
void jw_softmax_cross_entropy_input_gradient(const jw_call *call) {
    const jw_index rows = call->attributes[0], classes = call->attributes[1];
    const float share = call->scalars[0] / (float)rows;
    const float *logits = call->reads[0];
    const int32_t *labels = call->reads[1];
    float *gradient = call->writes[0];
    for (jw_index r = 0; r < rows; r++) {
        scaled_softmax(logits + r * classes, gradient + r * classes, classes, share);
        gradient[r * classes + labels[r]] -= share;
    }
}

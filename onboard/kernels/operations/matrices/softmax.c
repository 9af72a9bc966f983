/* Softmax over rows, alone and with cross entropy. Subtracts a row's maximum before exp. */
#include "exponential.h"
#include "kernels.h"
#include "logarithm.h"

/* y = factor * softmax(x); x and y may be the same. */
static void scaled_softmax(const float *x, float *y, jw_index columns, float factor) {
    const float maximum = jw_maximum(x[0], x, columns);
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
        const float maximum = jw_maximum(x[0], x, classes);
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

/* --- cross entropy over parts of the classes ----------------------------------------------------- */

typedef struct {
    jw_index rows, first, classes; /* of the part */
} part;

static part part_of(const int32_t *a) {
    const part p = {a[0], a[2], a[3]};
    return p;
}

void jw_cross_entropy_block_maximum(const jw_call *call) {
    const part p = part_of(call->attributes);
    const int32_t *labels = call->reads[1];
    float *maximum = call->writes[0], *label_logit = call->writes[1];
    if (p.first > 0) {
        jw_take_over(maximum, call->reads[2], p.rows);
        jw_take_over(label_logit, call->reads[3], p.rows);
    }
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.classes;
        const jw_index label = labels[r] - p.first;
        maximum[r] = jw_maximum(p.first > 0 ? maximum[r] : x[0], x, p.classes);
        if (label >= 0 && label < p.classes) {
            label_logit[r] = x[label];
        } else if (p.first == 0) {
            label_logit[r] = 0.0f;
        }
    }
}

void jw_cross_entropy_block_sum(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float *maximum = call->reads[1];
    float *sums = call->writes[0];
    if (p.first > 0) {
        jw_take_over(sums, call->reads[2], p.rows * JW_LANES);
    } else {
        jw_fill(sums, 0.0f, p.rows * JW_LANES);
    }
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.classes;
        JW_CONTINUE_PRODUCTS(sums + r * JW_LANES, p.first, p.classes, jw_exp(x[i] - maximum[r]),
                             1.0f);
    }
}

void jw_cross_entropy_block_loss(const jw_call *call) {
    const jw_index rows = call->attributes[0];
    const float *maximum = call->reads[0], *label_logit = call->reads[1], *sums = call->reads[2];
    float total = 0.0f;
    for (jw_index r = 0; r < rows; r++) {
        total += jw_log(jw_folded_lanes(sums + r * JW_LANES)) - (label_logit[r] - maximum[r]);
    }
    *(float *)call->writes[0] = call->scalars[0] * (total / (float)rows);
}

void jw_cross_entropy_block_input_gradient(const jw_call *call) {
    const part p = part_of(call->attributes);
    const float share = call->scalars[0] / (float)p.rows;
    const int32_t *labels = call->reads[1];
    const float *maximum = call->reads[2], *sums = call->reads[3];
    for (jw_index r = 0; r < p.rows; r++) {
        const float *x = (const float *)call->reads[0] + r * p.classes;
        float *gradient = (float *)call->writes[0] + r * p.classes;
        const float scale = share / jw_folded_lanes(sums + r * JW_LANES);
        const jw_index label = labels[r] - p.first;
        JW_INDEPENDENT
        for (jw_index i = 0; i < p.classes; i++) {
            gradient[i] = jw_exp(x[i] - maximum[r]) * scale;
        }
        if (label >= 0 && label < p.classes) {
            gradient[label] -= share;
        }
    }
}

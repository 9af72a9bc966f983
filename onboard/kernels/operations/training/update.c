/* Stochastic gradient descent, without momentum, with it and with Nesterov's, and Adam.
 *
 * The decay of weights is added to the gradient, as a penalty on their squares would be; AdamW's is
 * apart from the gradient. A decay of zero changes no bit, and takes as long as any other. */
#include <math.h>

#include "kernels.h"

void jw_sgd_update(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float rate = call->scalars[0], decay = call->scalars[1];
    const float *parameter = call->reads[0], *gradient = call->reads[1];
    float *next = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float g = JW_FMA(decay, parameter[i], gradient[i]);
        next[i] = JW_FMA(-rate, g, parameter[i]);
    }
}

void jw_sgd_momentum_update(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float rate = call->scalars[0], momentum = call->scalars[1], decay = call->scalars[2];
    const float *parameter = call->reads[0], *gradient = call->reads[1];
    const float *velocity = call->reads[2];
    float *next = call->writes[0], *next_velocity = call->writes[1];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float g = JW_FMA(decay, parameter[i], gradient[i]);
        const float moved = JW_FMA(momentum, velocity[i], g);
        next_velocity[i] = moved;
        next[i] = JW_FMA(-rate, moved, parameter[i]);
    }
}

/* The velocity moves once more before the parameter follows it. */
void jw_sgd_nesterov_update(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float rate = call->scalars[0], momentum = call->scalars[1], decay = call->scalars[2];
    const float *parameter = call->reads[0], *gradient = call->reads[1];
    const float *velocity = call->reads[2];
    float *next = call->writes[0], *next_velocity = call->writes[1];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float g = JW_FMA(decay, parameter[i], gradient[i]);
        const float moved = JW_FMA(momentum, velocity[i], g);
        next_velocity[i] = moved;
        next[i] = JW_FMA(-rate, JW_FMA(momentum, moved, g), parameter[i]);
    }
}

/* Moments begin at zero and are too small at first; corrections, 1 - rate^step of both, undo it.
 * The rates of change, 1 - beta, are exact in float where beta is not. */
void jw_adam_update(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float rate = call->scalars[0], first_rate = call->scalars[1];
    const float second_rate = call->scalars[2], epsilon = call->scalars[3];
    const float kept = 1.0f - rate * call->scalars[4], decay = call->scalars[5];
    const float *parameter = call->reads[0], *gradient = call->reads[1];
    const float *first = call->reads[2], *second = call->reads[3], *corrections = call->reads[4];
    float *next = call->writes[0], *next_first = call->writes[1], *next_second = call->writes[2];
    float *next_corrections = call->writes[3];
    const float first_correction = JW_FMA(1.0f - corrections[0], first_rate, corrections[0]);
    const float second_correction = JW_FMA(1.0f - corrections[1], second_rate, corrections[1]);
    const float step = rate / first_correction, scale = 1.0f / sqrtf(second_correction);

    next_corrections[0] = first_correction;
    next_corrections[1] = second_correction;
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float g = JW_FMA(decay, parameter[i], gradient[i]);
        const float moved = JW_FMA(first_rate, g - first[i], first[i]);
        const float spread = JW_FMA(second_rate, JW_FMA(g, g, -second[i]), second[i]);
        next_first[i] = moved;
        next_second[i] = spread;
        next[i] = kept * parameter[i] - step * moved / (sqrtf(spread) * scale + epsilon);
    }
}

/* Stochastic gradient descent, with and without momentum. */
#include "kernels.h"

void jw_sgd_update(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float rate = call->scalars[0];
    const float *parameter = call->reads[0], *gradient = call->reads[1];
    float *next = call->writes[0];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        next[i] = JW_FMA(-rate, gradient[i], parameter[i]);
    }
}

void jw_sgd_momentum_update(const jw_call *call) {
    const jw_index elements = call->attributes[0];
    const float rate = call->scalars[0], momentum = call->scalars[1];
    const float *parameter = call->reads[0], *gradient = call->reads[1];
    const float *velocity = call->reads[2];
    float *next = call->writes[0], *next_velocity = call->writes[1];
    JW_INDEPENDENT
    for (jw_index i = 0; i < elements; i++) {
        const float moved = JW_FMA(momentum, velocity[i], gradient[i]);
        next_velocity[i] = moved;
        next[i] = JW_FMA(-rate, moved, parameter[i]);
    }
}

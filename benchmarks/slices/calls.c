/* Kernel calls one after the other, so that a short call is not measured with Python around it. */
#include "joulewright.h"

void run_calls(size_t count, void (*const kernels[])(const jw_call *), const jw_call *const calls[],
               size_t repetitions) {
    for (size_t r = 0; r < repetitions; r++) {
        for (size_t i = 0; i < count; i++) {
            kernels[i](calls[i]);
        }
    }
}

/* Reads the lines of a harness plan that every platform understands:
 *
 *   op id=1 copies=1 first=0 min_ns=20000000 max_ns=500000000 kind=sgd.update attributes=432
 *      scalars=00000000 reads=1728:signed:3f800000,1728:signed:3f800000 writes=@0
 *   step id=2 first=0 min_ns=... max_ns=... buffers=2 calls=1
 *   buffer bytes=1728 fill=signed:3f800000
 *   call kind=relu.forward attributes=432 scalars=- reads=0 writes=1
 *
 * (an op is one line). A fill is `zero`, `signed:` and the bits of the amplitude, `positive`, or
 * `index:` and the bound. `@0` overwrites the first operand that is read. `-` is an empty list.
 * Platforms have further lines of their own.
 */
#ifndef JW_PLAN_H
#define JW_PLAN_H

#include "core.h"
#include "text.h"

/* Read the rest of a line after its first word. Each function returns false with text->error set if
 * the line is wrong. */
bool jw_plan_op(jw_text *text, uint32_t *id, jw_limits *limits, jw_op *op);
bool jw_plan_step(jw_text *text, uint32_t *id, jw_limits *limits, uint32_t *buffers,
                  uint32_t *calls);
bool jw_plan_buffer(jw_text *text, size_t *bytes, jw_fill *fill);
bool jw_plan_call(jw_text *text, jw_step_call *call);

/* Reads `kind=... attributes=...`; *bytes is the workspace that this kernel needs. */
bool jw_plan_workspace(jw_text *text, size_t *bytes);

#endif

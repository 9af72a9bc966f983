/* The lines of a plan that run schedules, on any platform:
 *
 *   replay plan=0                  takes the arena (of the line `arena`) for a plan of this
 *                                  program, and the scratch, if it pages; forgets every step so far
 *   keep kept=3 address=0          what the arena holds there is the initial value of something
 *                                  that is kept in storage
 *   commit                         behind the last `keep`: step number 0 is complete
 *   train id=5 watched=1           one step, recorded as a window; inputs are in their places
 *   probes first=0                 checksums of the last watched step, from this one on, as many as
 *                                  go into an answer: `probes first=0 values=0badf00d,...`
 *   spans first=0                  the same of when actions began and how long they took, in
 *                                  seconds, bits of float32:
 *                                  `spans first=0 values=3f800000:3a83126f,...`
 *   counters                       `counters steps=1 bytes_in=0 bytes_out=0 erased_blocks=0
 *                                  touched_bytes=4096`, of storage whole pages, since `replay`
 *   recover                        looks in the scratch for the last complete step:
 *                                  `recovered step=12`
 *   fetch kept=3 address=0         from there to the arena
 *
 * A step that goes wrong is refused with `action 12: ` and a sentence, or with a sentence alone
 * where no single action is to blame. What the last complete step has left in storage is then
 * intact; what is in RAM is not.
 *
 * Of a transport are the lines that bring bytes: on Linux the program carries them out itself, with
 * files; firmware is given them by WRITE and READ (docs/serial-protocol.md).
 *
 *   load address=0 bytes=1024 at=4096      from the data that came with the plan, to the arena
 *   dump address=0 bytes=1024              from the arena, behind what was dumped before
 *
 * Numbers in these bytes are those of a little-endian machine; others refuse to replay.
 */
#ifndef JW_REPLAY_H
#define JW_REPLAY_H

#include "executor.h"
#include "message.h"
#include "runner.h"

typedef struct {
    jw_medium *medium; /* the platform's scratch; NULL: none */
    uint32_t room;     /* in front of the runner's memory, and behind it, for canaries */

    jw_executor executor; /* its plan is NULL before `replay` */
    jw_store store;
    uint32_t steps;
    char blamed[24];
} jw_replay;

/* Whether jw_replay_line would measure: the platform falls silent first. */
bool jw_replay_measures(const char *word);

/* What the line has to say goes to `answer`, which is empty. */
jw_line_result jw_replay_line(jw_replay *replay, const jw_runner *runner, const char *word,
                              jw_text *text, jw_record *record, jw_message *answer);

/* An answer of so many bytes holds all probes and all spans of the plan. */
size_t jw_replay_answer_bytes(const jw_plan *plan);

/* Where in the arena a line brings bytes to, or takes them from; nothing else may be left on the
 * line. NULL leaves text->error. */
unsigned char *jw_replay_place(const jw_replay *replay, jw_text *text, size_t bytes,
                               uint64_t address);

#endif

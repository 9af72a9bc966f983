/* Carries out the lines of a harness plan that run schedules, on any platform:
 *
 *   replay plan=0                  begin a plan of this program in the arena (of the line `arena`),
 *                                  and in the scratch, if it pages
 *   frozen key=17                  begin to write the values that no step changes; if the storage
 *                                  holds those of this key, the lines that write them do nothing
 *   verify frozen=2 address=0      read a frozen tensor to this address; if the storage holds something
 *                                  else, the lines below write all frozen values again
 *   verify_rows table=0 first=0 count=8 address=0
 *                                  the same for rows of a frozen table; overwrites what follows them
 *   freeze frozen=2 address=0      write the frozen tensor at this address of the arena to the
 *                                  storage; all of them, then all frozen tables, in order
 *   keep kept=3 address=0          write the initial value at this address of the arena to the
 *                                  storage, as the value of a kept tensor
 *   keep_rows table=0 first=0 count=8 address=0
 *                                  the same for rows of a table; overwrites what follows them
 *   commit                         after the last `keep`: complete step number 0
 *   after steps=12                 steps of earlier runs, after which seeds go on; without it 0
 *   rate learning_rate=3c23d70a    learning rate of the next steps, as bits of float32; without this
 *                                  line it is that of the plan
 *   train id=5 watched=1           run one step, recorded as a window; its inputs are in the arena
 *                                  A watched step of more actions than the board has room for
 *                                  pauses, and is answered with `watching id=5`. Spans and probes
 *                                  since the last pause can then be read. They are lost by
 *   resume                         go on with the step: it is answered like `train`
 *   probes first=0                 checksums of the last watched step, from this index on, as many
 *                                  as fit into an answer: `probes first=0 values=0badf00d,...`
 *   spans first=0                  the same for starts and durations of actions in seconds, as bits
 *                                  of float32: `spans first=0 values=3f800000:3a83126f,...`
 *   counters                       `counters steps=1 bytes_in=0 bytes_out=0 erased_blocks=0
 *                                  touched_bytes=4096 transfer_ns=0`, since `replay`; storage in
 *                                  whole pages, and the processor's time for transfers within steps
 *   recover                        find the last complete step in the scratch:
 *                                  `recovered step=12`
 *   fetch kept=3 address=0         read a kept tensor from that step to the arena
 *   fetch_rows table=0 first=0 count=8 address=0
 *                                  the same for rows of a table
 *
 * A step that fails is refused with `action 12: ` and a sentence, or with a sentence alone where no
 * single action failed. The values of the last complete step in storage are then intact; those in
 * RAM are not.
 *
 * Two lines transfer bytes and depend on the transport. On Linux the program carries them out with
 * files; firmware receives WRITE and READ requests instead (docs/serial-protocol.md).
 *
 *   load address=0 bytes=1024 at=4096      from the plan's data to the arena
 *   dump address=0 bytes=1024              from the arena, appended to earlier dumps
 *
 * Numbers in these bytes are little-endian; big-endian machines refuse to replay.
 */
#ifndef JW_REPLAY_H
#define JW_REPLAY_H

#include "executor.h"
#include "message.h"
#include "runner.h"

/* State of the replay lines. */
typedef struct {
    jw_medium *medium; /* the platform's scratch; NULL: none */
    uint32_t room;     /* bytes on both sides of the runner's memory, for canaries */

    jw_executor executor; /* its plan is NULL before `replay` */
    jw_store store;
    uint32_t steps;          /* completed since `replay` */
    jw_record record;        /* of the last step */
    bool watches, is_paused; /* the last step is watched; it pauses */
    float learning_rate;     /* of the last `rate` */
    char blamed[24];         /* `action 12:`, for errors */
} jw_replay;

/* Whether jw_replay_line would measure. The platform stops communicating before that. */
bool jw_replay_measures(const char *word);

/* Carry out the line that begins with `word`; the answer is written to `answer`, which is empty. */
jw_line_result jw_replay_line(jw_replay *replay, const jw_runner *runner, const char *word,
                              jw_text *text, jw_record *record, jw_message *answer);

/* Size of an answer with all probes, or with all spans, of the plan. */
size_t jw_replay_answer_bytes(const jw_plan *plan);

/* Address of the bytes in the arena that a line refers to; nothing may be left on the line. NULL
 * with text->error set if they are outside the arena. */
unsigned char *jw_replay_place(const jw_replay *replay, jw_text *text, size_t bytes,
                               uint64_t address);

#endif

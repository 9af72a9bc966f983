/* Replays on Linux: the lines of replay.h, with files for loads and dumps, and a hard limit of
 * memory. Further lines:
 *
 *   store bytes=8388608 anew=1 directory=/var/tmp   before `replay`, for a plan that pages; see
 *                                   linux_replay_store.h. Answers `scratch direct=1`
 *   forget                          remove the store's file
 *   gradients                       append the gradients of the next step to the dump, each as its
 *                                   update reads it
 *
 * From each `replay` until the next one, the address space of the process is limited to its size
 * at that time. The answer of `counters` is followed by
 *
 *   process limit_bytes=... overhead_bytes=... peak_resident_bytes=...
 *
 * with that limit, the part of it outside the plan's arena, and the peak of resident memory since
 * `replay`. The answers of `probes` and `spans` are complete.
 */
#ifndef JW_LINUX_REPLAY_H
#define JW_LINUX_REPLAY_H

#include <stdio.h>

#include "replay.h"

#define JW_REPLAY_ROOM 4096 /* bytes mapped on both sides of the arena */

/* State of replays on Linux. */
typedef struct {
    jw_replay replay;
    FILE *results, *dump;
    int data;             /* descriptor; -1 without data */
    uint64_t limit_bytes; /* address space, since `replay` */
    char *answer;
    size_t answer_bytes;
} jw_linux_replay;

/* Begin replays. `data` and `dump` are paths, or NULL. Exits if they cannot be opened. */
void jw_linux_replay_begin(jw_linux_replay *replay, FILE *results, const char *data,
                           const char *dump);

/* Like jw_runner_line; answers are written to the results. */
jw_line_result jw_linux_replay_line(jw_linux_replay *replay, const jw_runner *runner,
                                    const char *word, jw_text *text, jw_record *record);

/* Exit code for a refused line: JW_EXIT_STEP for lines that do work, else JW_EXIT_PLAN. */
int jw_linux_replay_exit_code(const char *word);

/* Close files and end the channel. */
void jw_linux_replay_end(jw_linux_replay *replay);

#endif

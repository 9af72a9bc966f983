/* Replays on Linux: the lines of replay.h, with files for the bytes that come and go, and a hard
 * limit of memory. Besides:
 *
 *   store bytes=8388608 anew=1 directory=/var/tmp   in front of `replay`, for a plan that pages;
 *                                   see linux_replay_store.h. Says `scratch direct=1`
 *   forget                          the store's file is removed
 *
 * From `replay` on, until the next one, the process cannot have more address space than it has
 * then. Behind `counters` stands
 *
 *   process limit_bytes=... overhead_bytes=... peak_resident_bytes=...
 *
 * that limit, how much of it is not the plan's arena, and the most that was in RAM since `replay`.
 * `probes` and `spans` say all from the first on.
 */
#ifndef JW_LINUX_REPLAY_H
#define JW_LINUX_REPLAY_H

#include <stdio.h>

#include "replay.h"

#define JW_REPLAY_ROOM 4096 /* mapped in front of the arena, and behind it */

typedef struct {
    jw_replay replay;
    FILE *results, *dump;
    int data;             /* -1: none came with the plan */
    int processor;        /* for transfers */
    uint64_t limit_bytes; /* of memory, since `replay` */
    char *answer;
    size_t answer_bytes;
} jw_linux_replay;

/* `data` and `dump` are paths, or NULL. Exits where they cannot be opened. */
void jw_linux_replay_begin(jw_linux_replay *replay, FILE *results, const char *data,
                           const char *dump, int processor);

/* As jw_runner_line. What a line has to say goes to the results. */
jw_line_result jw_linux_replay_line(jw_linux_replay *replay, const jw_runner *runner,
                                    const char *word, jw_text *text, jw_record *record);

/* Of a line that was refused: whether the plan was wrong, or what it asked for went wrong. */
int jw_linux_replay_exit_code(const char *word);

void jw_linux_replay_end(jw_linux_replay *replay);

#endif

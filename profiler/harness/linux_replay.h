/* Replays on Linux: the lines of replay.h, with files for the bytes that come and go, and a hard
 * limit of memory. Besides:
 *
 *   store bytes=8388608 anew=1 directory=/var/tmp   in front of `replay`, for a plan that pages; see
 *                                   linux_replay_store.h. Says `store direct=1`
 *   forget                          the store's file is removed
 *
 * `replay` says `limit address_space_bytes=... resident_bytes=... arena_bytes=...`: from here on,
 * until the next `replay`, the process cannot have more than that. `counters` ends with
 * peak_resident_bytes, of the process since `replay`. `probes` and `spans` say all from the first
 * on.
 */
#ifndef JW_LINUX_REPLAY_H
#define JW_LINUX_REPLAY_H

#include <stdio.h>

#include "replay.h"

#define JW_REPLAY_ROOM 4096 /* mapped in front of the arena, and behind it */

typedef struct {
    jw_replay replay;
    FILE *results, *dump;
    int data; /* -1: none came with the plan */
    int processor; /* for transfers */
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

/* The file that replays page to. It has a name, so that what a run has left in it can be recovered
 * by a later one. */
#ifndef JW_LINUX_REPLAY_STORE_H
#define JW_LINUX_REPLAY_STORE_H

#include <stdbool.h>

#include "medium.h"
#include "text.h"

/* What follows the word `store`:
 *
 *   bytes=8388608 anew=1 directory=/var/tmp
 *
 * Makes the file .joulewright-store in the directory (anew=1; one that is there is written over),
 * or opens the one that is there and has this size (anew=0). It is filled, so that a disk that is
 * too small is told now, and locked: one replay at a time. *is_direct as in linux_storage.h.
 *
 * Transfers are of any multiple of four bytes, from and to any address that is one; what is
 * written is filled up with zeros to whole pages, see jw_store_file_pages.
 *
 * NULL leaves text->error. Exits with JW_EXIT_STORAGE where the file cannot be had; what goes wrong
 * later is told by the transfers. */
jw_medium *jw_store_file_open(jw_text *text, bool *is_direct);

/* Pages that begin at every multiple of page_bytes. False: it does not divide the size of the
 * buffers. */
bool jw_store_file_pages(jw_medium *medium, uint32_t page_bytes);

/* Removes the file. NULL, or why not. */
const char *jw_store_file_forget(jw_medium *medium);

#endif

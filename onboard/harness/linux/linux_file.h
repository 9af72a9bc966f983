/* Files on the storage that is measured, or paged to. */
#ifndef JW_LINUX_FILE_H
#define JW_LINUX_FILE_H

#include <stdbool.h>
#include <stdint.h>

#define JW_DIRECT_ALIGNMENT 4096 /* of memory that is read into or written from */

/* Another descriptor of an open file, past the page cache; *is_direct becomes false where its file
 * system refuses O_DIRECT (tmpfs), and stays so. -1 leaves errno. */
int jw_open_direct(int file, int flags, bool *is_direct);

/* Writes random data, from the begin on, and syncs. False leaves errno. */
bool jw_fill_file(int file, uint64_t bytes);

#endif

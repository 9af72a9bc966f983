/* Formats error messages of media. */
#ifndef JW_SENTENCE_H
#define JW_SENTENCE_H

/* Format a sentence with `%u`, `%x` (at least two digits) of uint32_t, and `%s`. The result is
 * valid until the next call; text longer than the buffer is cut off. */
const char *jw_sentence(const char *format, ...);

#endif

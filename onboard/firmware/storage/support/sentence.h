/* Sentences that say what is wrong with a medium. */
#ifndef JW_SENTENCE_H
#define JW_SENTENCE_H

/* `%u`, `%x` (two digits or more) of uint32_t, and `%s`. The result is there until the next call;
 * what is longer than the buffer is cut off. */
const char *jw_sentence(const char *format, ...);

#endif

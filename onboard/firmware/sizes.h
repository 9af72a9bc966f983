/* Sizes of the serial link's buffers, by the board's RAM (JW_RAM_BYTES, from its description). */
#ifndef JW_SIZES_H
#define JW_SIZES_H

#define JW_WINDOW 4 /* most requests under way at once */

#if JW_RAM_BYTES <= 32768
#define JW_FRAME_BYTES 128
#define JW_LINE_BYTES 512
#elif JW_RAM_BYTES <= 131072
#define JW_FRAME_BYTES 512
#define JW_LINE_BYTES 1024
#else
#define JW_FRAME_BYTES 1024
#define JW_LINE_BYTES 2048
#endif

/* Buffer for a text answer; that of hello is the longest. */
#define JW_TEXT_BYTES 1024

#endif

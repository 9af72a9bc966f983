/* Writes the board's description, sent when a session begins. */
#ifndef JW_HELLO_H
#define JW_HELLO_H

#include "message.h"

/* Write the description as `key=value` lines. */
void jw_hello(jw_message *answer);

#endif

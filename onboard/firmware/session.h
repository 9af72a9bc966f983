/* Requests and answers: nothing is done twice, and everything is answered again when asked. */
#ifndef JW_SESSION_H
#define JW_SESSION_H

_Noreturn void jw_session_serve(void);

#endif

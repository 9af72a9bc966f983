/* Serves requests: a repeated request is not carried out again, but its answer is sent again. */
#ifndef JW_SESSION_H
#define JW_SESSION_H

/* Serve requests for ever. */
_Noreturn void jw_session_serve(void);

#endif

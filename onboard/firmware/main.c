/* Joulewright's harness on a Cortex-M: receives requests of the profiler over the UART, measures,
 * and answers. */
#include "board.h"
#include "clock.h"
#include "link.h"
#include "session.h"

int main(void) {
    board_init();
    jw_clock_init();
    jw_link_init();
    jw_session_serve();
}

#include "session.h"

#include <stdbool.h>
#include <string.h>

#include "board.h"
#include "cpu.h"
#include "hello.h"
#include "lines.h"
#include "link.h"

enum { HELLO = 0x01, LINE, WRITE, READ, REST, RESTART };
enum { OK = 0x81, STARTED, DONE, REFUSED, EXPECTED, STRANGER };

/* An answer. Its data stay valid until the next request, so that it can be sent again. */
typedef struct {
    uint8_t kind;
    uint16_t whole;   /* bytes of the whole answer, sent with it */
    const void *data; /* from the requested offset on */
    size_t bytes;
} answer;

static uint16_t session; /* 0: no session since the start */
static uint16_t expected;
static uint8_t last_kind; /* kind of the last request */
static answer last;

static char line[JW_LINE_BYTES + 1];
static size_t line_length;
static bool line_too_long;

static char answer_text[JW_TEXT_BYTES]; /* of the last LINE or HELLO */
static jw_message message;

/* --- answers ---------------------------------------------------------------------------------- */

static uint16_t read16(const uint8_t *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t read32(const uint8_t *at) {
    return read16(at) | (uint32_t)read16(at + 2) << 16;
}

static void send(const jw_frame *request, const answer *answer) {
    const jw_frame header = {
        .kind = answer->kind, .session = request->session, .sequence = request->sequence};
    const uint8_t whole[2] = {(uint8_t)answer->whole, (uint8_t)(answer->whole >> 8)};
    const size_t room = request->most > sizeof whole ? request->most - sizeof whole : 0;
    jw_link_send(&header, whole, sizeof whole, answer->data,
                 answer->bytes < room ? answer->bytes : room);
}

static void send_bare(const jw_frame *request, uint8_t kind) {
    const jw_frame header = {
        .kind = kind, .session = request->session, .sequence = request->sequence};
    jw_link_send(&header, NULL, 0, NULL, 0);
}

static void send_expected(const jw_frame *request) {
    const answer next = {.kind = EXPECTED, .whole = expected};
    send(request, &next);
}

static answer of_text(uint8_t kind, const char *text) {
    const size_t length = strlen(text);
    return (answer){kind, (uint16_t)length, text, length};
}

static const answer nothing = {.kind = OK};

/* --- requests --------------------------------------------------------------------------------- */

static answer say_hello(void) {
    jw_lines_begin();
    line_length = 0;
    line_too_long = false;
    jw_message_begin(&message, answer_text, sizeof answer_text);
    jw_hello(&message);
    return of_text(OK, answer_text);
}

static answer run_line(const jw_frame *request) {
    jw_message_begin(&message, answer_text, sizeof answer_text);
    line[line_length] = '\0';
    line_length = 0;
    const bool measures = jw_line_begin(line);
    if (measures) {
        send_bare(request, STARTED);
        jw_link_silence();
    }
    const bool done = jw_line_run(&message);
    if (measures) {
        jw_link_listen();
    }
    return of_text(!done ? REFUSED : measures ? DONE : OK, answer_text);
}

static answer take_line(const jw_frame *request) {
    const bool is_last = request->length && request->payload[0];
    const size_t bytes = request->length ? request->length - 1u : 0;
    line_too_long = line_too_long || bytes > JW_LINE_BYTES - line_length;
    if (line_too_long) {
        line_too_long = !is_last; /* the rest of the line is refused too */
        line_length = 0;
        jw_message_begin(&message, answer_text, sizeof answer_text);
        jw_message_text(&message, "the line is longer than line_bytes");
        return of_text(REFUSED, answer_text);
    }
    memcpy(line + line_length, request->payload + 1, bytes);
    line_length += bytes;
    return is_last ? run_line(request) : nothing;
}

/* Address of `bytes` bytes at the offset that begins the payload; NULL if outside the arena. */
static unsigned char *piece(const jw_frame *request, size_t bytes) {
    size_t size;
    unsigned char *memory = jw_lines_memory(&size);
    const uint32_t offset = read32(request->payload);
    return offset <= size && bytes <= size - offset ? memory + offset : NULL;
}

static const char outside[] = "these bytes are outside the arena";
static const char malformed[] = "the request is shorter than its kind needs";

static answer write_memory(const jw_frame *request) {
    if (request->length < 4) {
        return of_text(REFUSED, malformed);
    }
    const size_t bytes = request->length - 4u;
    unsigned char *memory = piece(request, bytes);
    if (!memory) {
        return of_text(REFUSED, outside);
    }
    memcpy(memory, request->payload + 4, bytes);
    return nothing;
}

static answer read_memory(const jw_frame *request) {
    if (request->length < 6) {
        return of_text(REFUSED, malformed);
    }
    const uint16_t bytes = read16(request->payload + 4);
    const unsigned char *memory = piece(request, bytes);
    return memory ? (answer){OK, bytes, memory, bytes} : of_text(REFUSED, outside);
}

static answer read_rest(const jw_frame *request) {
    if (request->length < 2) {
        return of_text(REFUSED, malformed);
    }
    const size_t length = strlen(answer_text), offset = read16(request->payload);
    return offset <= length ? (answer){OK, (uint16_t)length, answer_text + offset, length - offset}
                            : of_text(REFUSED, "the answer is not that long");
}

static answer execute(const jw_frame *request) {
    switch (request->kind) {
    case LINE:
        return take_line(request);
    case WRITE:
        return write_memory(request);
    case READ:
        return read_memory(request);
    case REST:
        return read_rest(request);
    case RESTART:
        return nothing;
    default:
        return of_text(REFUSED, "there is no such request");
    }
}

/* --- sequences -------------------------------------------------------------------------------- */

static void handle(const jw_frame *request) {
    const bool known = session && request->session == session;
    const bool again = known && request->sequence == (uint16_t)(expected - 1) &&
                       (request->kind == HELLO) == (last_kind == HELLO);
    if (!known && request->kind != HELLO) {
        send_bare(request, STRANGER);
        return;
    }
    if (!again) {
        if (request->kind != HELLO && request->sequence != expected) {
            send_expected(request);
            return;
        }
        last = request->kind == HELLO ? say_hello() : execute(request);
        session = request->session;
        expected = (uint16_t)(request->sequence + 1);
        last_kind = request->kind;
    }
    send(request, &last);
    if (request->kind == RESTART) {
        board_uart_flush();
        cpu_restart();
    }
}

/* Announce a restart, so that a host which waits for the end of a window stops waiting. */
static void announce_restart(void) {
    const jw_frame header = {.session = 0};
    send_bare(&header, STRANGER);
}

_Noreturn void jw_session_serve(void) {
    jw_lines_begin();
    announce_restart();
    for (;;) {
        jw_frame request;
        jw_link_receive(&request);
        handle(&request);
    }
}

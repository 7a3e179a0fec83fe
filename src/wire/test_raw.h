/* test_raw.h - a client that says exactly what a test wants, frame by frame */
#ifndef MS_WIRE_TEST_RAW_H
#define MS_WIRE_TEST_RAW_H

#include "wire/conn.h"
#include "wire/test_rig.h"

enum { RAW_SEEN_MAX = 1024 };

struct raw_message {
    struct ms_frame head;
    uint8_t *body;
    size_t len;
};

struct raw {
    struct ms_conn *conn;
    struct raw_message seen[RAW_SEEN_MAX];
    size_t count;
    int end; /* why reading ended; 0: it has not */
};

/* Connect and prove the secret. Sessions with the same number are the same. */
void raw_open(struct raw *r, struct rig *rig, unsigned session, uint8_t lane);
void raw_close(struct raw *r);

void raw_send(struct raw *r, const struct ms_frame *head, const void *body, size_t len);
/* A CALL of the engine's op 16. */
void raw_call(struct raw *r, uint64_t id, uint16_t flags, const char *text);
/* As it is, without a frame. */
void raw_write(struct raw *r, const void *data, size_t len);

/* Read until this has come (again: seen after the first `skip` messages). */
const struct raw_message *
raw_wait(struct raw *r, uint8_t kind, uint64_t id, size_t skip);
/* The reply, as text. */
void raw_expect(struct raw *r, uint64_t id, const char *text);
void raw_expect_failure(struct raw *r, uint64_t id, Muster__Failure__Kind kind);
/* Everything that was sent has been dealt with: a ping was answered. */
void raw_sync(struct raw *r);
/* Read until the server closes. */
void raw_wait_closed(struct raw *r);

#endif

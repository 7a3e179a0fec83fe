/* store.h - the objects of the node's store in which a worker's HTTP keeps tensors
 *
 * HTTP is a holder of its own there, besides the worker's engine: nothing here needs the
 * interpreter, and what it holds goes when it is let go of, or with the process. The I/O
 * thread waits for nobody: what the agent is asked for is asked by a thread of its own, one
 * thing after the other, and the answer comes on the loop.
 *
 * The bytes of a tensor are in pieces, so that memory grows with what has arrived, and a
 * tensor may be larger than the memory of the store. Pieces rest: what nobody reads may be spilled.
 *
 * One that is filled or read is busy, and cannot be spilled. While many are (a quarter of
 * the store) a request for another one waits until some are left, so that room can be made for
 * it, however many clients there are.
 */
#ifndef MS_WORKER_HTTP_STORE_H
#define MS_WORKER_HTTP_STORE_H

#include "base/error.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "store/client/client.h"
#include "store/server/work.h"

/* Bytes of every piece but the last are a multiple of this: whole numbers, of base64 too. */
#define MS_HTTP_PIECE_UNIT ((size_t)48 << 10)

struct ms_http_piece {
    struct ms_held *held; /* a reference, which rests */
    uint64_t offset, len; /* of these bytes in it */
};

struct ms_http_pieces {
    struct ms_http_piece *all;
    size_t count, room;
};

/* Takes the reference, which reads, also on failure: -ENOMEM. */
int ms_http_pieces_add(struct ms_http_pieces *p,
                       struct ms_held *held,
                       uint64_t offset,
                       uint64_t len);
/* Lets go of all. */
void ms_http_pieces_finish(struct ms_http_pieces *p);

struct ms_http_store;

/* `boot` is borrowed for its life. NULL: out of memory. */
struct ms_http_store *ms_http_store_create(struct ms_loop *loop,
                                           const Muster__WorkerBoot *boot);
/* When the loop does not run any more. What was asked for is dropped. */
void ms_http_store_destroy(struct ms_http_store *s);
/* In a forked child: close what was inherited. */
void ms_http_store_forget(struct ms_http_store *s);

/* Hold [offset, offset + len) of an object that this process holds otherwise. Any thread; waits
 * for the agent. */
int ms_http_store_hold(struct ms_http_store *s,
                       const struct ms_held *of,
                       uint64_t offset,
                       uint64_t len,
                       struct ms_http_pieces *out,
                       struct ms_error *err);

/* Something that was asked for. */
struct ms_http_ask {
    struct ms_work_job job;
    struct ms_http_store *store;
    bool is_piece;     /* a piece is wanted that will be busy */
    bool is_waiting;   /* for others to be left, */
    int64_t expiry_ns; /* until then */
    int (*run)(struct ms_http_ask *a, struct ms_store_client *c);
    void (*on_done)(void *arg, struct ms_http_ask *a); /* NULL: nobody waits any more */
    void *arg;

    uint64_t len;
    struct ms_http_pieces pieces; /* take these */
    struct ms_held *held;         /* or this */
    struct ms_error err;          /* its code is 0: it is there */
};

/* The answer comes once, on the loop, unless it is dropped; NULL: out of memory.
 *   make    a new object of up to `len` bytes, a multiple of MS_HTTP_PIECE_UNIT: a->held is busy
 *   bring   the bytes of one that rests: a->held reads, and is busy
 *   narrow  pieces of float32, which are taken, as bfloat16: a->pieces */
struct ms_http_ask *ms_http_ask_make(struct ms_http_store *s,
                                     uint64_t len,
                                     void (*on_done)(void *arg, struct ms_http_ask *a),
                                     void *arg);
struct ms_http_ask *ms_http_ask_bring(struct ms_http_store *s,
                                      struct ms_held *held,
                                      void (*on_done)(void *arg, struct ms_http_ask *a),
                                      void *arg);
struct ms_http_ask *ms_http_ask_narrow(struct ms_http_store *s,
                                       struct ms_http_pieces *pieces,
                                       void (*on_done)(void *arg,
                                                       struct ms_http_ask *a),
                                       void *arg);
void ms_http_ask_drop(struct ms_http_ask *a);
/* One that rests, if its bytes are here: it reads, and is busy. NULL: it is to be brought. */
struct ms_held *ms_http_store_read(struct ms_http_store *s, struct ms_held *held);
/* One is not busy any more: after its reference went. */
void ms_http_store_leave(struct ms_http_store *s);

#endif

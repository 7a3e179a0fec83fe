/* client.h - a process's side of its node's store
 *
 * One per process, opened when it is first needed. Any thread may use it; nothing here
 * needs the interpreter.
 *
 *   make     room for a new object: write into `write`, then send its name to others
 *   attach   hold an object by a name that was received, and read it
 *   adopt    the same for one that came with an answer: it is ours already, no round trip
 *   grant    give one of ours to the caller, before the answer is sent; taken back if
 *            it is not sent after all
 *
 * A struct ms_held is what this process has of one object; there is one for each object,
 * with a count of its own. When the last reference goes, the agent is told, without
 * waiting. The sender of a name keeps a reference for as long as the other side may not
 * have attached it: until the call has ended.
 *
 * An object that no process reads may be spilled to a disk when memory is short. Every
 * reference reads, unless it says that it rests: then the object's bytes may have gone, or
 * be elsewhere, until it is attached again.
 *
 * Both maps of the arena are made once and kept. Nothing is unmapped, so that a pointer
 * into them never faults, whatever happens to the object.
 */
#ifndef MS_STORE_CLIENT_H
#define MS_STORE_CLIENT_H

#include "base/error.h"
#include "base/list.h"
#include "proto/muster.pb-c.h"
#include "store/stored.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_store_client;

struct ms_held {
    uint64_t node, id, len;
    uint8_t *write;      /* NULL: no bytes here (yet), or not ours to write */
    const uint8_t *read; /* NULL: no bytes here, or it rests */
    const char *address; /* of its node */
    uint64_t at;
    uint64_t of, offset; /* of a slice that was asked for; else 0 */

    /* the client's */
    struct ms_store_client *client;
    unsigned refs;
    unsigned reading; /* of these, those that do not rest */
    /* client->resting, if none reads and the agent was not told */
    struct ms_list resting;
    int64_t counts; /* that the agent has of us */
    int64_t reads;  /* the same */
    uint64_t key;
};

struct ms_store_client_options {
    const char *path;      /* of the store's socket */
    const uint8_t *secret; /* MS_SECRET_SIZE bytes */
    uint64_t holder;       /* who we are, never 0 */
    const char *name;      /* for people */
    /* Asked now and then by a thread that waits, without any lock: true ends the wait with
     * -EINTR. May be NULL. */
    bool (*is_interrupted)(void);
    /* An agent that says nothing for so long is waited for no longer;
     * 0: MS_STORE_ANSWER_NS */
    int64_t answer_ns;
};

/* -ECONNREFUSED, -ENOENT: there is no agent. */
struct ms_store_client *ms_store_client_open(const struct ms_store_client_options *o,
                                             struct ms_error *err);
/* Everything that is held is given back at once. What was read stays readable; the client
 * itself is freed with the last reference. */
void ms_store_client_close(struct ms_store_client *c);
/* In a forked child: close what was inherited. Nothing is sent any more. */
void ms_store_client_forget(struct ms_store_client *c);

uint64_t ms_store_client_node(const struct ms_store_client *c);
uint64_t ms_store_client_holder(const struct ms_store_client *c);
uint64_t ms_store_client_limit(const struct ms_store_client *c);
/* What a user should know of this store, in one sentence; or empty. */
const char *ms_store_client_warning(const struct ms_store_client *c);

/* A new object; `site` is the line of the program. -ENOSPC: the store is full, and the
 * error says who holds it; -ENOMEM, -EINTR, -EPIPE (the agent has gone), -ETIMEDOUT (it is
 * stopped). */
struct ms_held *ms_store_client_make(struct ms_store_client *c,
                                     uint64_t len,
                                     const char *site,
                                     struct ms_error *err);

/* Bytes of this process, and where they are in the store (payload.h). */
struct ms_store_bytes {
    const void *data;
    uint64_t len;
    struct ms_held *held; /* a reference; NULL: not there yet */
    uint64_t offset;
};
/* Find those that lie in the arena already. How many bytes an object for the others needs. */
uint64_t ms_store_client_find_all(struct ms_store_client *c,
                                  struct ms_store_bytes *all,
                                  size_t count);
/* Copy those that are not there, all or none, into one new object (`together`), or each into
 * one of its own, in one round trip. As ms_store_client_make; `err` is needed. */
int ms_store_client_write(struct ms_store_client *c,
                          struct ms_store_bytes *all,
                          size_t count,
                          bool together,
                          const char *site,
                          struct ms_error *err);

/* Hold all of these (all or none); out[i] is a new reference. `bare`: without their
 * bytes, which is enough to name them to others. -ENOENT: one is gone. */
int ms_store_client_attach(struct ms_store_client *c,
                           const struct ms_stored_name *names,
                           size_t count,
                           bool bare,
                           struct ms_held **out,
                           struct ms_error *err);
/* An answer of node `from` has arrived that grants us this one: a new reference, or NULL
 * (out of memory). */
struct ms_held *ms_store_client_adopt(struct ms_store_client *c,
                                      const struct ms_stored_name *name,
                                      uint64_t from);
/* The object that [at, at + len) lies in, whole; a new reference, or NULL. Memory of private_map.h
 * is found too, if it was not written. */
struct ms_held *ms_store_client_find_memory(struct ms_store_client *c,
                                            const void *at,
                                            size_t len,
                                            uint64_t *offset);

/* One count of ours to a process of some node, which adopts it; or it is taken back: the
 * answer that it was granted with was not sent, or was not read. */
int ms_store_client_grant(struct ms_store_client *c,
                          const struct ms_stored_name *name,
                          uint64_t node,
                          uint64_t holder,
                          bool is_taken_back);

struct ms_held *ms_held_ref(struct ms_held *h);
/* A new reference to one whose bytes are here; NULL: it has to be attached again. */
struct ms_held *ms_held_read(struct ms_held *h);
void ms_held_unref(struct ms_held *h);
/* This reference only keeps the object from now on; before it goes it must wake again, which
 * does not bring bytes. */
void ms_held_rest(struct ms_held *h);
void ms_held_wake(struct ms_held *h);
void ms_held_name(const struct ms_held *h, struct ms_stored_name *name);
/* How to attach [offset, offset + len) of it: by its name, or, if its bytes are on another
 * node and much less than all of them is wanted, by that of a slice; then true. */
bool ms_held_name_range(const struct ms_held *h,
                        uint64_t offset,
                        uint64_t len,
                        struct ms_stored_name *name);

/* What the node has; muster__store_stats__free_unpacked. NULL and the reason. */
Muster__StoreStats *
ms_store_client_stats(struct ms_store_client *c, bool objects, struct ms_error *err);

#endif

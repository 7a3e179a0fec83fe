/* server.h - the store of one node, owned by its agent
 *
 * Runs on the agent's loop. Listens on a unix socket of packets; a process of this node
 * proves the secret, says who it is, and is given the arena's descriptor once. From then on
 * it asks for objects (one round trip for each payload, however many buffers that has) and
 * reads and writes them by itself; see client.h.
 *
 * Stores of other nodes come over TCP, on the link lane; see peers/peers.h.
 *
 * A process that ends, by its pidfd or by the end of its connection, holds nothing any
 * more.
 */
#ifndef MS_STORE_SERVER_H
#define MS_STORE_SERVER_H

#include "base/error.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/transport/tls.h"

struct ms_store;

struct ms_store_options {
    struct ms_loop *loop;
    const char *path;      /* of the socket; copied */
    const char *node_name; /* copied */
    const uint8_t *secret; /* MS_SECRET_SIZE bytes, copied */
    uint64_t limit;        /* bytes; 0: no objects */
    /* Where objects that are not read go when there is no room; copied. NULL: nowhere. */
    const char *spill_dir;
    uint64_t spill_limit; /* bytes; 0: half of what is free there */
    /* For stores of other nodes: a listening TCP socket, which is taken over, also on
     * failure (-1: none come), and the addresses by which they find it; copied. */
    int listen_fd;
    const char *address;
    enum ms_tls_mode tls;
    /* Bytes that may still be taken besides what the machine has: of the container. NULL: as
     * many as there are. Any thread. */
    uint64_t (*memory_left)(void);
    /* What users should know of it, told to each process; or NULL */
    const char *warning;
    /* Something that its owner may log, in one sentence. May be NULL. */
    void (*on_note)(void *arg, const char *text);
    void *note_arg;
};

struct ms_store *ms_store_create(const struct ms_store_options *o,
                                 struct ms_error *err);
/* When the loop does not run any more. Removes the socket. */
void ms_store_destroy(struct ms_store *s);

/* Those of these objects that were made here are held once more by `holder`, which is no
 * process, until ms_store_unkeep. How many they are, or -ENOMEM. */
int ms_store_keep(struct ms_store *s,
                  uint64_t holder,
                  const char *name,
                  Muster__StoredName *const *names,
                  size_t count);
void ms_store_unkeep(struct ms_store *s, uint64_t holder);

/* Can anything be spilled to `dir`? 0, or why not. */
int ms_store_check_spill(const char *dir, struct ms_error *err);

/* What it has, and the largest of its objects; muster__store_stats__free_unpacked. NULL: out
 * of memory. */
Muster__StoreStats *ms_store_stats(struct ms_store *s, size_t objects_max);

#endif

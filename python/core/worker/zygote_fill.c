/* zygote_fill.c - what a zygote does before it forks, so that its children start faster
 *
 * A child that is forked shares the memory of its parent until it writes. What it allocates
 * first are the holes that imports have left all over the heap, and each of them costs the
 * copy of a page. So the parent fills the holes before it forks: its children then begin
 * with pages of their own, which need no copy and lie together.
 */
#include "core.h"

#include "io/loop.h"
#include "wire/handshake.h"
#include "wire/transport/tls.h"
#include "worker/stack.h"

#include <malloc.h>

enum {
    BIG = 96 << 10, /* below what malloc asks the kernel for by itself */
    SMALL = 24,
    HOLES_MAX = 1 << 17,
    POOL = 16 << 10, /* of the interpreter's allocator, from which small objects come */
    POOL_HEAD = 48,
    OBJECT_MAX = 512,
    OBJECT_STEP = 16,
    POOL_FILL_MAX = 1 << 20 /* bytes of one size */
};

static void *holes; /* each begins with the next */

static void keep(void *hole)
{
    *(void **)hole = holes;
    holes = hole;
}

/* Where the part of the heap begins that was never allocated. */
static const uint8_t *fresh(void)
{
    return (const uint8_t *)sbrk(0) - mallinfo2().keepcost;
}

static void fill_heap(void)
{
    const uint8_t *start = fresh();
    int count = 0;

    for (size_t size = BIG; size >= SMALL; size -= size / 8 + 1)
        for (; count < HOLES_MAX; count++) {
            void *hole = malloc(size);

            if (!hole)
                return;
            if ((const uint8_t *)hole >= start) {
                free(hole);
                break;
            }
            keep(hole);
        }
}

/* Objects of each size until one is the first of a pool. */
static void fill_pools(void)
{
    for (size_t size = OBJECT_STEP; size <= OBJECT_MAX; size += OBJECT_STEP)
        for (size_t bytes = 0; bytes < POOL_FILL_MAX; bytes += size) {
            void *object = PyObject_Malloc(size);

            if (!object)
                return;
            if ((uintptr_t)object % POOL == POOL_HEAD) {
                PyObject_Free(object);
                break;
            }
            keep(object);
        }
}

static const uint8_t nobody[MS_SECRET_SIZE], nonce[32], session[MS_SESSION_SIZE];

/* The first proof of a process takes ten times as long as the next one. */
static void warm_handshake(void)
{
    struct ms_handshake client, server;
    uint8_t answer[MS_HELLO_SERVER_SIZE];
    size_t len = 0;

    ms_handshake_init_client(&client, nobody, nonce, session, MS_LANE_CALL, 0);
    ms_handshake_init_server(&server, nobody, nonce, 0);
    ms_handshake_step(&server, client.hello_client, answer, &len, NULL);
    ms_handshake_finish(&client);
    ms_handshake_finish(&server);
}

/* What libraries do once in a process: their tables, their configuration. */
static void warm_libraries(void)
{
    ms_tls_unref(ms_tls_create(nobody));
    warm_handshake();
    ms_loop_destroy(ms_loop_create());
    ms_stack_warm();
}

PyObject *core_zygote_fill(PyObject *self, PyObject *unused)
{
    warm_libraries();
    fill_pools();
    fill_heap();
    Py_RETURN_NONE;
}

#include "core.h"

#include "wire/tls.h"

#include <malloc.h>
#include <unistd.h>

/* A child that is forked shares the memory of its parent until it writes. What it
 * allocates first are the holes that imports have left all over the heap, and each of them
 * costs the copy of a page. So the parent fills the holes before it forks: its children
 * then begin with pages of their own, which need no copy and lie together. */

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

/* Where the part of the heap begins that nobody has had yet. */
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

/* What the TLS library does once in a process: its tables, its configuration. */
static void warm_tls(void)
{
    static const uint8_t nobody[32];

    ms_tls_unref(ms_tls_create(nobody));
}

PyObject *core_zygote_fill(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    warm_tls();
    fill_pools();
    fill_heap();
    Py_RETURN_NONE;
}

/* pages_test.c - tests of pages.h: maps of the arena, and the memory behind them */
#include "store/pages.h"

#include "base/cleanup.h"
#include "store/server/space.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BLOCKS 4
#define SIZE   (BLOCKS * MS_SPACE_BLOCK)

static int open_file(void)
{
    int fd = memfd_create("pages", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, SIZE), 0);
    return fd;
}

static uint64_t memory_of(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

static void test_maps_begin_at_a_block(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open_file();
    uint8_t *maps[8];

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        maps[i] = ms_pages_map(fd, SIZE, PROT_READ | PROT_WRITE);
        assert_non_null(maps[i]);
        assert_int_equal((uintptr_t)maps[i] % MS_SPACE_BLOCK, 0);
        maps[i][SIZE - 1] = (uint8_t)i;
    }
    assert_int_equal(maps[0][SIZE - 1], 7);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(munmap(maps[i], SIZE), 0);
    assert_null(ms_pages_map(fd, UINT64_MAX, PROT_READ));
    assert_null(ms_pages_map(-1, SIZE, PROT_READ));
}

static void test_commit_allocates_and_keeps_what_is_there(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open_file();
    uint8_t *at = ms_pages_map(fd, SIZE, PROT_READ | PROT_WRITE);

    (void)state;
    assert_non_null(at);
    at[MS_SPACE_BLOCK + 5000] = 7;
    assert_int_equal(ms_pages_commit(at + MS_SPACE_BLOCK, 2 * MS_SPACE_BLOCK), 0);
    assert_int_equal(memory_of(fd), 2 * MS_SPACE_BLOCK);
    assert_int_equal(at[MS_SPACE_BLOCK + 5000], 7);
    assert_int_equal(at[MS_SPACE_BLOCK], 0);
    assert_int_equal(at[3 * MS_SPACE_BLOCK - 1], 0);
    assert_int_equal(ms_pages_commit(at, SIZE), 0); /* some of it again */
    assert_int_equal(memory_of(fd), SIZE);
    assert_int_equal(at[MS_SPACE_BLOCK + 5000], 7);
    munmap(at, SIZE);
}

static void test_commit_of_what_cannot_be_written_fails(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open_file();
    uint8_t *at = ms_pages_map(fd, SIZE, PROT_READ);

    (void)state;
    assert_non_null(at);
    assert_true(ms_pages_commit(at, SIZE) < 0);
    assert_int_equal(memory_of(fd), 0);
    munmap(at, SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps_begin_at_a_block),
        cmocka_unit_test(test_commit_allocates_and_keeps_what_is_there),
        cmocka_unit_test(test_commit_of_what_cannot_be_written_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* piece_test.c - tests of piece.h: a piece of a log file for a reader on another
 * machine */
#include "agent/logs/piece.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/ms-readlog-XXXXXX";
static char actor_0[] = "actor-0.log", actor_3[] = "actor-3.log", agent[] = "agent.log";

static int setup(void **state)
{
    char logs[64];

    (void)state;
    strcpy(dir, "/tmp/ms-readlog-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(logs, sizeof logs, "%s/logs", dir);
    return mkdir(logs, 0700);
}

static int teardown(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, dir);
}

static void put(const char *name, const char *text)
{
    char path[96];
    FILE *f;

    snprintf(path, sizeof path, "%s/logs/%s", dir, name);
    f = fopen(path, "a");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    fclose(f);
}

/* Read one piece, compare it, and go on from there. */
static void expect(Muster__ReadLog *want, const char *text)
{
    Muster__LogPiece piece = MUSTER__LOG_PIECE__INIT;

    assert_int_equal(ms_log_piece_read(dir, want, &piece, NULL), 0);
    assert_int_equal(piece.data.len, strlen(text));
    if (piece.data.len)
        assert_memory_equal(piece.data.data, text, piece.data.len);
    want->file = piece.file;
    want->offset = piece.offset;
    free(piece.data.data);
}

static void test_from_the_beginning(void **state)
{
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;

    (void)state;
    want.name = actor_3;
    want.all = true;
    expect(&want, ""); /* there is none yet */
    assert_int_equal(want.file, 0);
    put("actor-3.log", "one\n");
    put("actor-30.log", "of another\n");
    expect(&want, "one\n");
    expect(&want, "");
    put("actor-3.log", "two\n");
    expect(&want, "two\n");
}

static void test_last_lines(void **state)
{
    static const struct {
        uint64_t lines;
        const char *text;
    } cases[] = {
        {1, "three\n"}, {2, "two\nthree\n"}, {9, "one\ntwo\nthree\n"}, {0, ""}};

    (void)state;
    put("actor-0.log", "one\ntwo\nthree\n");
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        Muster__ReadLog want = MUSTER__READ_LOG__INIT;

        want.name = actor_0;
        want.lines_max = cases[i].lines;
        expect(&want, cases[i].text);
        expect(&want, "");
    }
}

static void test_through_a_rotation(void **state)
{
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;
    char from[96], to[96];

    (void)state;
    want.name = agent;
    want.all = true;
    put("agent.log", "old\n");
    expect(&want, "old\n");
    put("agent.log", "before\n");
    snprintf(from, sizeof from, "%s/logs/agent.log", dir);
    snprintf(to, sizeof to, "%s/logs/agent.log.1", dir);
    assert_int_equal(rename(from, to), 0);
    put("agent.log", "behind\n");
    expect(&want, "before\n");
    expect(&want, "behind\n");
    expect(&want, "");
}

static void test_pieces_have_a_limit(void **state)
{
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;
    Muster__LogPiece piece = MUSTER__LOG_PIECE__INIT;
    char line[1025];

    (void)state;
    memset(line, 'x', 1023);
    strcpy(line + 1023, "\n");
    for (size_t i = 0; i < MS_LOG_PIECE_MAX / 1024 + 1; i++)
        put("actor-0.log", line);
    want.name = actor_0;
    want.all = true;
    assert_int_equal(ms_log_piece_read(dir, &want, &piece, NULL), 0);
    assert_int_equal(piece.data.len, MS_LOG_PIECE_MAX);
    want.file = piece.file;
    want.offset = piece.offset;
    free(piece.data.data);
    expect(&want, line);
}

static void test_names_and_links(void **state)
{
    static const char *const bad[] = {"../actor-0.log",
                                      "logs/actor-0.log",
                                      "..",
                                      "",
                                      ".log",
                                      "..log",
                                      "secret",
                                      "a b.log"};
    Muster__LogPiece piece = MUSTER__LOG_PIECE__INIT;
    Muster__ReadLog want = MUSTER__READ_LOG__INIT;
    char path[96];

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        want.name = (char *)(uintptr_t)bad[i];
        assert_int_equal(ms_log_piece_read(dir, &want, &piece, NULL), -EINVAL);
    }
    snprintf(path, sizeof path, "%s/logs/actor-0.log", dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    want.name = actor_0;
    want.all = true;
    assert_int_equal(ms_log_piece_read(dir, &want, &piece, NULL), -ELOOP);
    assert_null(piece.data.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_from_the_beginning, setup, teardown),
        cmocka_unit_test_setup_teardown(test_last_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(test_through_a_rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces_have_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_and_links, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

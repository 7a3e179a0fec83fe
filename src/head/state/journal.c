/* journal.c - records in one table of an SQLite file */
#include "head/state/journal.h"
#include "base/cleanup.h"
#include "head/state/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of this format; a file with a higher one is of a newer Muster. */
enum { VERSION = 1, PATH_ROOM = 4096 };

enum statement { WRITE, REMOVE, DROP, STATEMENTS };

static const char *const texts[STATEMENTS] = {
    [WRITE] = ("INSERT INTO record (space, key, data) VALUES (?1, ?2, ?3) "
               "ON CONFLICT (space, key) DO UPDATE SET data = excluded.data"),
    [REMOVE] = "DELETE FROM record WHERE space = ?1 AND key = ?2",
    [DROP] = "DELETE FROM record WHERE space = ?1 AND key >= ?2 AND key < ?3",
};

/* Prepared for each reading: who reads may read more of it meanwhile. */
static const char read_text[] =
    "SELECT key, data FROM record WHERE space = ?1 AND key >= ?2 AND key < ?3 "
    "ORDER BY key";

struct ms_journal {
    const struct ms_sqlite *lib;
    char path[PATH_ROOM];
    sqlite3 *db;
    sqlite3_stmt *prepared[STATEMENTS];
    bool is_rewriting;
    bool has_lost; /* a change could not be written */
    uint32_t first_lasting;
    const struct ms_journal_ops *ops;
    void *arg;
};

/* ---- what goes wrong --------------------------------------------------------------- */

static int code_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW:
        return 0;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EBADMSG;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return -EACCES;
    default:
        return -EIO;
    }
}

static const char *advice(int code)
{
    switch (code) {
    case -EBADMSG:
        return ": it is damaged. Move it away to begin anew; what runs is not known "
               "then";
    case -EBUSY:
        return ": another process has it open";
    case -ENOSPC:
        return ": the disk is full";
    case -EROFS:
        return ": it cannot be written";
    default:
        return "";
    }
}

/* SQLite's `rc` as ours; 0 is none. */
static int fail(struct ms_journal *d, int rc, const char *what, struct ms_error *err)
{
    int code = code_of(rc);

    if (code == 0)
        return 0;
    return ms_error_set(err,
                        code,
                        "cannot %s the journal '%s'%s (%s)",
                        what,
                        d->path,
                        advice(code),
                        d->db ? d->lib->errmsg(d->db) : d->lib->errstr(rc));
}

/* ---- one statement ----------------------------------------------------------------- */

static int prepare(struct ms_journal *d, enum statement which, sqlite3_stmt **out)
{
    int rc = SQLITE_OK;

    if (!d->prepared[which])
        rc = d->lib->prepare_v2(d->db, texts[which], -1, &d->prepared[which], NULL);
    *out = d->prepared[which];
    return rc;
}

static int bind_key(
    struct ms_journal *d, sqlite3_stmt *s, uint32_t space, const char *key, int key_len)
{
    int rc = d->lib->bind_int64(s, 1, space);

    return rc ? rc : d->lib->bind_text(s, 2, key, key_len, SQLITE_STATIC);
}

static int finish_statement(struct ms_journal *d, sqlite3_stmt *s, int rc)
{
    d->lib->reset(s);
    d->lib->clear_bindings(s);
    return rc;
}

static int change(struct ms_journal *d,
                  uint32_t space,
                  const char *key,
                  const uint8_t *data,
                  size_t len)
{
    static const uint8_t nothing[1];
    sqlite3_stmt *s;
    int rc = prepare(d, data ? WRITE : REMOVE, &s);

    if (rc)
        return rc;
    rc = bind_key(d, s, space, key, -1);
    if (!rc && data)
        rc = d->lib->bind_blob(s, 3, len ? data : nothing, (int)len, SQLITE_STATIC);
    return finish_statement(d, s, rc ? rc : d->lib->step(s));
}

int ms_journal_write(struct ms_journal *d,
                     uint32_t space,
                     const char *key,
                     const uint8_t *data,
                     size_t len,
                     struct ms_error *err)
{
    return d ? fail(d, change(d, space, key, data, len), "write", err) : 0;
}

/* What the keys with a prefix are less than; false: no key is. */
static bool end_of(const char *prefix, char *out, size_t room)
{
    size_t len = strlen(prefix);

    if (len == 0 || len >= room)
        return false;
    memcpy(out, prefix, len + 1);
    out[len - 1]++; /* keys are names and digits: below 0x7f */
    return true;
}

/* Keys from `prefix` on, that begin with it and are below `before`. */
static int bind_range(struct ms_journal *d,
                      sqlite3_stmt *s,
                      uint32_t space,
                      const char *prefix,
                      const char *before)
{
    char end[PATH_ROOM];
    int rc = bind_key(d, s, space, prefix, -1);

    if (!before && !end_of(prefix, end, sizeof end))
        strcpy(end, "\x7f");
    if (!rc)
        rc = d->lib->bind_text(s, 3, before ? before : end, -1, SQLITE_TRANSIENT);
    return rc;
}

int ms_journal_drop(struct ms_journal *d,
                    uint32_t space,
                    const char *prefix,
                    const char *before,
                    struct ms_error *err)
{
    sqlite3_stmt *s;
    int rc;

    if (!d)
        return 0;
    rc = prepare(d, DROP, &s);
    if (!rc)
        rc = bind_range(d, s, space, prefix, before);
    if (!rc)
        rc = d->lib->step(s);
    return fail(d, s ? finish_statement(d, s, rc) : rc, "write", err);
}

int ms_journal_read(
    struct ms_journal *d,
    uint32_t space,
    const char *prefix,
    void (*on_record)(void *arg, const char *key, const uint8_t *data, size_t len),
    void *arg,
    struct ms_error *err)
{
    return ms_journal_read_some(
        d, space, prefix, prefix, SIZE_MAX, on_record, arg, err);
}

int ms_journal_read_some(
    struct ms_journal *d,
    uint32_t space,
    const char *prefix,
    const char *from,
    size_t count_max,
    void (*on_record)(void *arg, const char *key, const uint8_t *data, size_t len),
    void *arg,
    struct ms_error *err)
{
    sqlite3_stmt *s = NULL;
    size_t count = 0;
    int rc;

    if (!d)
        return 0;
    rc = d->lib->prepare_v2(d->db, read_text, -1, &s, NULL);
    if (!rc)
        rc = bind_range(d, s, space, prefix, NULL);
    if (!rc)
        rc = d->lib->bind_text(s, 2, from, -1, SQLITE_TRANSIENT);
    while (!rc && count++ < count_max && (rc = d->lib->step(s)) == SQLITE_ROW) {
        on_record(arg,
                  (const char *)d->lib->column_text(s, 0),
                  d->lib->column_blob(s, 1),
                  (size_t)d->lib->column_bytes(s, 1));
        rc = SQLITE_OK;
    }
    rc = fail(d, rc, "read", err);
    d->lib->finalize(s);
    return rc;
}

/* ---- without a word ---------------------------------------------------------------- */

static int execute(struct ms_journal *d, const char *text)
{
    return d->lib->exec(d->db, text, NULL, NULL, NULL);
}

int ms_journal_begin(struct ms_journal *d, struct ms_error *err)
{
    return d ? fail(d, execute(d, "BEGIN IMMEDIATE"), "write", err) : 0;
}

int ms_journal_commit(struct ms_journal *d, int rc, struct ms_error *err)
{
    if (!d)
        return rc;
    if (rc == 0)
        rc = fail(d, execute(d, "COMMIT"), "write", err);
    if (rc < 0)
        execute(d, "ROLLBACK"); /* a full disk may have done it already */
    return rc;
}

static int forget(struct ms_journal *d)
{
    char text[80];

    snprintf(
        text, sizeof text, "DELETE FROM record WHERE space < %u", d->first_lasting);
    return execute(d, text);
}

/* All that the owner has and nothing else: what was lost may be a deletion. The change comes
 * behind it, since the owner may not have made it yet. All or nothing. */
static void rewrite(struct ms_journal *d,
                    uint32_t space,
                    const char *key,
                    const uint8_t *data,
                    size_t len)
{
    if (execute(d, "BEGIN IMMEDIATE"))
        return;
    d->has_lost = forget(d) != SQLITE_OK;
    d->is_rewriting = true;
    d->ops->on_rewrite(d->arg, d);
    d->is_rewriting = false;
    if (d->has_lost || change(d, space, key, data, len) != SQLITE_DONE ||
        execute(d, "COMMIT")) {
        d->has_lost = true;
        execute(d, "ROLLBACK");
    }
}

void ms_journal_put(struct ms_journal *d,
                    uint32_t space,
                    const char *key,
                    const uint8_t *data,
                    size_t len)
{
    if (!d)
        return;
    if (change(d, space, key, data, len) != SQLITE_DONE)
        d->has_lost = true;
    else if (d->has_lost && !d->is_rewriting)
        rewrite(d, space, key, data, len);
}

void ms_journal_delete(struct ms_journal *d, uint32_t space, const char *key)
{
    ms_journal_put(d, space, key, NULL, 0);
}

/* ---- the file ---------------------------------------------------------------------- */

static int pragma(struct ms_journal *d, const char *text, int64_t *out)
{
    sqlite3_stmt *s = NULL;
    int rc = d->lib->prepare_v2(d->db, text, -1, &s, NULL);

    if (!rc)
        rc = d->lib->step(s);
    if (rc == SQLITE_ROW && out)
        *out = d->lib->column_int64(s, 0);
    d->lib->finalize(s);
    return code_of(rc) ? rc : SQLITE_OK;
}

static int check_version(struct ms_journal *d, struct ms_error *err)
{
    int64_t version = 0;
    int rc = pragma(d, "PRAGMA user_version", &version);

    if (rc)
        return fail(d, rc, "open", err);
    if (version == 0)
        return fail(d, SQLITE_NOTADB, "open", err); /* no file of ours */
    if (version <= VERSION)
        return 0;
    return ms_error_set(err,
                        -ENOTSUP,
                        "the journal '%s' was written by a newer Muster (format %lld; "
                        "this one knows %d): start that one, or move the file away",
                        d->path,
                        (long long)version,
                        VERSION);
}

static int make_table(struct ms_journal *d)
{
    static const char *const steps[] = {
        ("CREATE TABLE record (space INTEGER NOT NULL, key TEXT NOT "
         "NULL, "
         "data BLOB NOT NULL, PRIMARY KEY (space, key)) WITHOUT ROWID"),
        "PRAGMA user_version = 1",
    };
    int rc = SQLITE_OK;

    for (size_t i = 0; !rc && i < MS_COUNT(steps); i++)
        rc = execute(d, steps[i]);
    return rc;
}

static int set_up(struct ms_journal *d, struct ms_error *err)
{
    /* held until it is closed, so that there are never two controllers */
    int rc = pragma(d, "PRAGMA locking_mode = EXCLUSIVE", NULL);

    if (!rc)
        rc = pragma(d, "PRAGMA journal_mode = WAL", NULL);
    if (!rc)
        rc = execute(d, "PRAGMA synchronous = NORMAL");
    return fail(d, rc, "open", err);
}

static int read_all(struct ms_journal *d, struct ms_error *err)
{
    sqlite3_stmt *s = NULL;
    int rc = d->lib->prepare_v2(
        d->db, "SELECT space, key, data FROM record ORDER BY space, key", -1, &s, NULL);
    static const uint8_t nothing[1];

    while (!rc && (rc = d->lib->step(s)) == SQLITE_ROW) {
        const uint8_t *data = d->lib->column_blob(s, 2);

        d->ops->on_record(d->arg,
                          (uint32_t)d->lib->column_int64(s, 0),
                          (const char *)d->lib->column_text(s, 1),
                          data ? data : nothing,
                          (size_t)d->lib->column_bytes(s, 2));
        rc = SQLITE_OK;
    }
    d->lib->finalize(s);
    return fail(d, rc, "read", err);
}

static int open_database(struct ms_journal *d, struct ms_error *err)
{
    int rc = d->lib->open_v2(
        d->path, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    return fail(d, rc, "open", err);
}

/* A new one gets its name when it has its table. The user's own, whatever the umask. */
static int make_file(const struct ms_journal *d, struct ms_error *err)
{
    struct ms_journal made = {.lib = d->lib};
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    int rc;

    snprintf(made.path, sizeof made.path, "%.*s.new", PATH_ROOM - 8, d->path);
    unlink(made.path);
    fd = open(made.path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make the journal '%s'", d->path);
    rc = open_database(&made, err);
    if (rc == 0)
        rc = fail(&made, make_table(&made), "make", err);
    d->lib->close_v2(made.db);
    if (rc == 0 && rename(made.path, d->path) < 0)
        rc = ms_error_sys(err, -errno, "cannot make the journal '%s'", d->path);
    if (rc < 0)
        unlink(made.path);
    return rc;
}

/* SQLite would follow a link, and begin anew in a file without bytes. */
static int check_file(const struct ms_journal *d, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(d->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return make_file(d, err);
    if (fd < 0 || fstat(fd, &st) < 0)
        return ms_error_sys(err, -errno, "cannot open the journal '%s'", d->path);
    if (!S_ISREG(st.st_mode))
        return ms_error_set(err, -EINVAL, "the journal '%s' is no file", d->path);
    if (st.st_size == 0)
        return ms_error_set(err,
                            -EBADMSG,
                            "cannot open the journal '%s'%s (it is empty)",
                            d->path,
                            advice(-EBADMSG));
    return 0;
}

static int open_file(struct ms_journal *d, struct ms_error *err)
{
    int rc = check_file(d, err);

    if (rc == 0)
        rc = open_database(d, err);
    if (rc == 0)
        rc = check_version(d, err);
    return rc == 0 ? set_up(d, err) : rc;
}

int ms_journal_open(struct ms_journal **out,
                    const char *dir,
                    const char *name,
                    bool is_kept,
                    uint32_t first_lasting,
                    const struct ms_journal_ops *ops,
                    void *arg,
                    struct ms_error *err)
{
    const struct ms_sqlite *lib = ms_sqlite_load(err);
    struct ms_journal *d = lib ? calloc(1, sizeof *d) : NULL;
    int rc;

    if (!d)
        return lib ? ms_error_set(err, -ENOMEM, "out of memory") : -ELIBACC;
    d->lib = lib;
    d->ops = ops;
    d->arg = arg;
    d->first_lasting = first_lasting;
    snprintf(d->path, sizeof d->path, "%s/%s", dir, name);
    rc = open_file(d, err);
    if (rc == 0 && !is_kept)
        rc = fail(d, forget(d), "write", err);
    if (rc == 0)
        rc = read_all(d, err);
    if (rc < 0) {
        ms_journal_close(d);
        return rc;
    }
    *out = d;
    return 0;
}

void ms_journal_close(struct ms_journal *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < STATEMENTS; i++)
        d->lib->finalize(d->prepared[i]);
    d->lib->close_v2(d->db);
    free(d);
}

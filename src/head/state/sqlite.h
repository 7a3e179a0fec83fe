/* sqlite.h - SQLite, loaded when a head first needs it
 *
 * Only a head keeps a journal, so nothing else is linked with the library: it is opened by
 * its name (libsqlite3.so.0) when the first journal is. The functions that are used are
 * members of one table.
 */
#ifndef MS_HEAD_STATE_SQLITE_H
#define MS_HEAD_STATE_SQLITE_H

#include "base/error.h"

#include <sqlite3.h>

struct ms_sqlite {
    __typeof__(sqlite3_open_v2) *open_v2;
    __typeof__(sqlite3_close_v2) *close_v2;
    __typeof__(sqlite3_exec) *exec;
    __typeof__(sqlite3_prepare_v2) *prepare_v2;
    __typeof__(sqlite3_finalize) *finalize;
    __typeof__(sqlite3_step) *step;
    __typeof__(sqlite3_reset) *reset;
    __typeof__(sqlite3_clear_bindings) *clear_bindings;
    __typeof__(sqlite3_bind_blob) *bind_blob;
    __typeof__(sqlite3_bind_text) *bind_text;
    __typeof__(sqlite3_bind_int64) *bind_int64;
    __typeof__(sqlite3_column_blob) *column_blob;
    __typeof__(sqlite3_column_bytes) *column_bytes;
    __typeof__(sqlite3_column_int64) *column_int64;
    __typeof__(sqlite3_column_text) *column_text;
    __typeof__(sqlite3_errmsg) *errmsg;
    __typeof__(sqlite3_errstr) *errstr;
    __typeof__(sqlite3_extended_errcode) *extended_errcode;
};

/* The table, the same for all; NULL: the library is not installed. Any thread. */
const struct ms_sqlite *ms_sqlite_load(struct ms_error *err);

#endif

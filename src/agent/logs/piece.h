/* piece.h - a piece of a log file for a reader on another machine
 *
 * The reader keeps the place: which file (by its inode) and how far. A file that was
 * rotated meanwhile is read to its end under its new name first. Never blocks on anything
 * but the disk, and never takes more than MS_LOG_PIECE_MAX.
 */
#ifndef MS_AGENT_LOGS_PIECE_H
#define MS_AGENT_LOGS_PIECE_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

/* Fill `out`; its data is malloc'd or NULL, also on failure. A log that is not there yet
 * is an empty piece of file 0. -EINVAL: a bad name; or why it cannot be read. */
int ms_log_piece_read(const char *session_dir,
                      const Muster__ReadLog *want,
                      Muster__LogPiece *out,
                      struct ms_error *err);

#endif

/* selector.h - which workers are meant, and how one ended, in words */
#ifndef MS_CLI_SELECTOR_H
#define MS_CLI_SELECTOR_H

#include "base/limits.h"
#include "cli/cli.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

/* The digits of a rank at the start of a text of `len` bytes: how many there are; 0: none, or
 * too many. */
size_t ms_rank_parse(const char *text, size_t len, uint32_t *rank);

/* CLUSTER or CLUSTER/RANK; "@node" behind a rank, as in log prefixes, is ignored. */
struct ms_cli_selector {
    char cluster[MS_NAME_MAX + 1]; /* "": any */
    bool has_rank;
    uint32_t rank;
};

/* Says on stderr what is wrong with the text. */
enum ms_exit ms_cli_selector_parse(const struct ms_cli *cli,
                                   const char *text,
                                   struct ms_cli_selector *out);
bool ms_cli_selector_matches(const struct ms_cli_selector *s,
                             const char *cluster,
                             uint32_t rank);

/* "exit code 3", "killed by SIGKILL (out of memory)", "stopped", with what is known
 * beside; returns `out`. */
const char *ms_exit_text(const Muster__Exit *e, char *out, size_t room);

#endif

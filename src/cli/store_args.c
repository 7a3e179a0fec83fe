#include "cli/store_args.h"
#include "base/size.h"

#include <errno.h>
#include <string.h>

static int
size_of(const struct ms_cli *cli, enum ms_opt id, uint64_t *out, struct ms_error *err)
{
    if (!ms_cli_has(cli, id) || ms_size_parse(cli->values[id], out) == 0)
        return 0;
    return ms_error_set(err,
                        -EINVAL,
                        "--%s wants a size such as 20GiB, not '%s'",
                        ms_cli_options[id].name,
                        cli->values[id]);
}

int ms_store_args(const struct ms_cli *cli,
                  Muster__StoreConfig *out,
                  struct ms_error *err)
{
    const char *dir = cli->values[MS_OPT_SPILL];

    muster__store_config__init(out);
    out->is_told = ms_cli_has(cli, MS_OPT_STORE_LIMIT);
    if (size_of(cli, MS_OPT_STORE_LIMIT, &out->limit, err) < 0 ||
        size_of(cli, MS_OPT_SPILL_LIMIT, &out->spill_limit, err) < 0)
        return -EINVAL;
    if (ms_cli_has(cli, MS_OPT_SPILL_LIMIT) && !out->spill_limit)
        return ms_error_set(err, -EINVAL, "--spill-limit 0: say --spill off instead");
    if (!dir)
        return 0;
    out->no_spill = strcmp(dir, "off") == 0;
    if (out->no_spill)
        return 0;
    if (dir[0] != '/')
        return ms_error_set(
            err, -EINVAL, "--spill wants the whole path of a folder, not '%s'", dir);
    out->spill_dir = (char *)(uintptr_t)dir;
    return 0;
}

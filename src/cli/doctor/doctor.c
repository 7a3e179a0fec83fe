/* doctor.c - `muster doctor`: run the checks, print what they find */
#include "cli/doctor/doctor.h"
#include "base/cleanup.h"
#include "cli/out.h"

#include <stdarg.h>

static const struct {
    const char *name; /* a stable word, for --json */
    void (*run)(struct ms_finding *f);
} checks[] = {
    {"python", ms_check_python},
    {"root", ms_check_root},
    {"sessions", ms_check_sessions},
    {"disk", ms_check_disk},
    {"descriptors", ms_check_descriptors},
    {"pidfd", ms_check_pidfd},
    {"memory-limits", ms_check_memory_limits},
    {"cores", ms_check_cores},
    {"shm", ms_check_shm},
    {"devices", ms_check_devices},
    {"clock", ms_check_clock},
    {"network", ms_check_network},
    {"ipv6", ms_check_ipv6},
    {"tls", ms_check_tls},
    {"host-id", ms_check_host_id},
};

static const struct {
    const char *name, *style;
} levels[] = {
    [MS_FINDING_OK] = {"ok", MS_STYLE_GOOD},
    [MS_FINDING_WARN] = {"warn", MS_STYLE_WARN},
    [MS_FINDING_FAIL] = {"fail", MS_STYLE_BAD},
};

void ms_finding_set(struct ms_finding *f, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
}

void ms_finding_rate(struct ms_finding *f,
                     enum ms_finding_level level,
                     const char *advice)
{
    f->level = level;
    snprintf(f->advice, sizeof f->advice, "%s", advice);
}

static enum ms_exit print_json(const struct ms_finding *found,
                               const size_t counts[MS_COUNT(levels)])
{
    json_t *list = json_array();

    for (size_t i = 0; i < MS_COUNT(checks); i++)
        json_array_append_new(
            list,
            MS_JSON({"check", json_string(checks[i].name)},
                    {"level", json_string(levels[found[i].level].name)},
                    {"text", ms_json_string(found[i].text)},
                    {"advice", ms_json_string(found[i].advice)}));
    return ms_out_json(
        MS_JSON({"checks", list},
                {"ok", json_integer((json_int_t)counts[MS_FINDING_OK])},
                {"warn", json_integer((json_int_t)counts[MS_FINDING_WARN])},
                {"fail", json_integer((json_int_t)counts[MS_FINDING_FAIL])}));
}

static enum ms_exit print_text(const struct ms_finding *found,
                               const size_t counts[MS_COUNT(levels)])
{
    struct ms_grid g;
    enum ms_exit code;

    ms_grid_init(&g, "lll");
    for (size_t i = 0; i < MS_COUNT(checks); i++) {
        const struct ms_finding *f = &found[i];

        ms_grid_add(&g, levels[f->level].style, "%s", levels[f->level].name);
        ms_grid_add(&g, NULL, "%s", checks[i].name);
        ms_grid_add(&g, NULL, "%s", f->text);
        if (!f->advice[0])
            continue;
        ms_grid_add(&g, NULL, "%s", "");
        ms_grid_add(&g, NULL, "%s", "");
        ms_grid_add(&g, levels[f->level].style, "-> %s", f->advice);
    }
    code = ms_out_grid(&g);
    printf("%zu ok, %zu warn, %zu fail\n",
           counts[MS_FINDING_OK],
           counts[MS_FINDING_WARN],
           counts[MS_FINDING_FAIL]);
    return code;
}

enum ms_exit ms_cmd_doctor(const struct ms_cli *cli)
{
    struct ms_finding found[MS_COUNT(checks)] = {0};
    size_t counts[MS_COUNT(levels)] = {0};
    enum ms_exit code;

    for (size_t i = 0; i < MS_COUNT(checks); i++) {
        found[i].python = cli->values[MS_OPT_PYTHON];
        checks[i].run(&found[i]);
        counts[found[i].level]++;
    }
    code = ms_cli_has(cli, MS_OPT_JSON) ? print_json(found, counts)
                                        : print_text(found, counts);
    return code == MS_EXIT_OK && counts[MS_FINDING_FAIL] ? MS_EXIT_FAILED : code;
}

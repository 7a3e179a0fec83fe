#include "cli/doctor/doctor.h"
#include "base/cleanup.h"
#include "cli/out.h"

#include <stdarg.h>
#include <string.h>

static const struct ms_check checks[] = {
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

void ms_finding_set(struct ms_finding *f,
                    enum ms_finding_level level,
                    const char *advice,
                    const char *fmt,
                    ...)
{
    va_list ap;

    f->level = level;
    snprintf(f->advice, sizeof f->advice, "%s", advice ? advice : "");
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
}

static enum ms_exit print_json(const struct ms_finding *found,
                               const size_t counts[MS_COUNT(levels)])
{
    json_t *list = json_array();

    for (size_t i = 0; i < MS_COUNT(checks); i++)
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:o, s:o}",
                      "check",
                      checks[i].name,
                      "level",
                      levels[found[i].level].name,
                      "text",
                      ms_json_text(found[i].text, strlen(found[i].text)),
                      "advice",
                      ms_json_text(found[i].advice, strlen(found[i].advice))));
    return ms_out_json(json_pack("{s:o, s:i, s:i, s:i}",
                                 "checks",
                                 list,
                                 "ok",
                                 (int)counts[MS_FINDING_OK],
                                 "warn",
                                 (int)counts[MS_FINDING_WARN],
                                 "fail",
                                 (int)counts[MS_FINDING_FAIL]));
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
        checks[i].run(cli, &found[i]);
        counts[found[i].level]++;
    }
    code = ms_cli_has(cli, MS_OPT_JSON) ? print_json(found, counts)
                                        : print_text(found, counts);
    return code == MS_EXIT_OK && counts[MS_FINDING_FAIL] ? MS_EXIT_FAILED : code;
}

#include "agent/zygote_key.h"
#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char python[] = "/usr/bin/python3", other[] = "/opt/python",
            home[] = "HOME=/root", omp1[] = "OMP_NUM_THREADS=1",
            omp4[] = "OMP_NUM_THREADS=4", mkl[] = "MKL_X=1", torch[] = "torch",
            numpy[] = "numpy", mod[] = "pkg.mod";
static char *pythons[] = {python}, *others[] = {other}, *base_env[] = {home};

static Muster__DriverContext config(void)
{
    Muster__DriverContext c = MUSTER__DRIVER_CONTEXT__INIT;

    c.n_python = 1;
    c.python = pythons;
    c.n_env = 1;
    c.env = base_env;
    return c;
}

static Muster__ZygoteKey *
normal(char **preload, size_t n_preload, char **env, size_t n_env)
{
    Muster__DriverContext c = config();
    Muster__ZygoteKey k = MUSTER__ZYGOTE_KEY__INIT, *out;

    k.preload = preload;
    k.n_preload = n_preload;
    k.env = env;
    k.n_env = n_env;
    out = ms_zygote_key_normal(&k, &c);
    assert_non_null(out);
    return out;
}

static void drop(Muster__ZygoteKey *k)
{
    muster__zygote_key__free_unpacked(k, NULL);
}

static void test_default_and_explicit_are_the_same(void **state)
{
    char *env[] = {home, omp1}, *preload[] = {numpy};
    Muster__DriverContext c = config();
    Muster__ZygoteKey *a = ms_zygote_key_normal(NULL, &c),
                      *b = normal(preload, 1, env, 2);

    (void)state;
    assert_string_equal(a->python[0], python);
    assert_int_equal(a->n_env, 1);
    assert_string_equal(a->env[0], omp1);
    assert_true(ms_zygote_key_equal(a, b));
    drop(a);
    drop(b);
}

static void test_order_of_variables_and_modules_does_not_matter(void **state)
{
    char *env_a[] = {mkl, omp4}, *env_b[] = {omp4, mkl};
    char *pre_a[] = {torch, mod, torch}, *pre_b[] = {mod, torch};
    Muster__ZygoteKey *a = normal(pre_a, 3, env_a, 2), *b = normal(pre_b, 2, env_b, 2);

    (void)state;
    assert_int_equal(a->n_preload, 2);
    assert_string_equal(a->preload[0], torch); /* imported as asked */
    assert_true(ms_zygote_key_equal(a, b));
    drop(a);
    drop(b);
}

static void test_extends(void **state)
{
    char *preload[] = {torch, mod}, *env[] = {omp4}, *missing[2];
    Muster__ZygoteKey *base = normal(preload, 1, NULL, 0),
                      *more = normal(preload, 2, NULL, 0),
                      *differs = normal(preload, 2, env, 1);

    (void)state;
    assert_true(ms_zygote_key_extends(more, base));
    assert_false(ms_zygote_key_extends(base, more));
    assert_false(ms_zygote_key_extends(differs, base));
    assert_false(ms_zygote_key_equal(more, base));
    assert_int_equal(ms_zygote_key_missing(more, base, missing), 1);
    assert_string_equal(missing[0], mod);
    drop(base);
    drop(more);
    drop(differs);
}

static void test_modules_of_all_workers(void **state)
{
    char *common[] = {torch}, *own[] = {mod, torch};
    Muster__DriverContext c = config();
    Muster__ZygoteKey key = MUSTER__ZYGOTE_KEY__INIT, *standard, *with, *elsewhere;

    (void)state;
    c.n_preload = 1;
    c.preload = common;
    standard = ms_zygote_key_normal(NULL, &c);
    assert_int_equal(standard->n_preload, 1);
    key.n_preload = 2;
    key.preload = own;
    with = ms_zygote_key_normal(&key, &c);
    assert_int_equal(with->n_preload, 2);
    assert_string_equal(with->preload[0], torch);
    assert_true(ms_zygote_key_extends(with, standard));
    key.n_preload = 0;
    key.n_python = 1;
    key.python = others;
    elsewhere = ms_zygote_key_normal(&key, &c);
    assert_int_equal(elsewhere->n_preload, 0);
    drop(standard);
    drop(with);
    drop(elsewhere);
}

static void test_another_interpreter(void **state)
{
    Muster__DriverContext c = config();
    Muster__ZygoteKey k = MUSTER__ZYGOTE_KEY__INIT;
    Muster__ZygoteKey *a, *b = normal(NULL, 0, NULL, 0);

    (void)state;
    k.n_python = 1;
    k.python = others;
    a = ms_zygote_key_normal(&k, &c);
    assert_false(ms_zygote_key_extends(a, b));
    drop(a);
    drop(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_and_explicit_are_the_same),
        cmocka_unit_test(test_order_of_variables_and_modules_does_not_matter),
        cmocka_unit_test(test_extends),
        cmocka_unit_test(test_modules_of_all_workers),
        cmocka_unit_test(test_another_interpreter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

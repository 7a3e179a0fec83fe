# Every target does its own set-up; doing it again costs a second. `make help` lists them.
#   PYTHON=...       another interpreter than python3 (3.11 or newer); .venv keeps it
#   FUZZ_SECONDS=20  how long `make fuzz` runs each fuzzer

export PYTHON
export FUZZ_SECONDS ?= 20

.PHONY: all wheel demo demo-first demo-llm demo-llm-train test check format bench bench-generate bench-generate-program fuzz test-wheel test-ray test-verl test-areal test-llm test-routers test-data soak test-chaos soak-data test-all clean distclean help setup

# the package and the CLI, in .venv
all: setup
	@tools/build release -Dpython=true -Dpython.install_env=venv \
		--prefix=$(CURDIR)/.venv
	@.venv/bin/python tools/install

setup:
	@tools/setup build
	@tools/venv

wheel: setup
	@python=$$(tools/wheel-venv) && $$python tools/wheel

demo: all
	@.venv/bin/python tools/demo

demo-first: all
	@.venv/bin/python examples/first.py

demo-llm: all
	@tools/demo-llm

demo-llm-train: all
	@tools/demo-llm train

test: all
	@.venv/bin/python tools/test

check: setup
	@tools/setup check
	@.venv/bin/python tools/check

format: setup
	@tools/setup check
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format-14 -i
	@.venv/bin/ruff format --quiet .
	@.venv/bin/ruff check --quiet --fix .

bench: all
	@bench/run

bench-generate-program: all
	@tools/build release -Dpython=true -Dpython.install_env=venv \
		--prefix=$(CURDIR)/.venv -- bench/generate/bench-generate

bench-generate: bench-generate-program
	@.venv/bin/python bench/generate/report.py

fuzz: setup
	@tools/setup fuzz
	@CC=clang-14 tools/build fuzz -Dfuzz=true -Dtests=false -Db_sanitize=address,undefined \
		-Db_lundef=false
	@tools/fuzz

test-wheel: all wheel
	@ray=$$(tools/ray-venv) && RAY_PYTHON=$$ray MUSTER_WHEEL=$$(echo $(CURDIR)/dist/muster_rl-*.whl) \
		.venv/bin/python -m pytest t/with_wheel

test-ray: all
	@.venv/bin/ninja -C build/release --quiet t/test_orchestrator_ray t/test_orchestrator_ray_real
	@MUSTER_TEST_SLOW=1 build/release/t/test_orchestrator_ray
	@ray=$$(tools/ray-venv) && MUSTER_RAY_CLUSTER="exec $$ray t/ray_cluster.py" \
		MUSTER_PYTHON_DIR=$$(echo .venv/lib/python3*/site-packages/muster) build/release/t/test_orchestrator_ray_real
	@ray=$$(tools/ray-venv) && RAY_PYTHON=$$ray bench/run --smoke --no-verl --no-areal
	@ray=$$(tools/ray-venv) && oldest=$$(tools/ray-venv oldest) && \
		RAY_PYTHON=$$ray OLDEST_RAY_PYTHON=$$oldest \
		.venv/bin/python -m pytest t/against_ray

test-verl: bench-generate-program
	@tools/verl-run -m pytest t/against_verl t/with_torch t/test_http.py
	@bench/run --smoke --only verl-fan-out --only verl-start

test-areal: all
	@tools/areal-run -m pytest t/with_areal
	@bench/run --smoke --only areal-calls --only areal-start

test-llm: all
	@LLM_PYTHON=$$(tools/llm-venv) || true; export LLM_PYTHON; \
		.venv/bin/python -m pytest -rs t/with_llm

test-routers: bench-generate-program
	@ROUTER_PYTHON=$$(tools/router-venv) .venv/bin/python -m pytest -rs t/against_routers \
		t/against_roll

test-data: all
	@MUSTER_TEST_DATA=1 .venv/bin/python -m pytest -s t/test_data_hosts.py t/test_data_pace.py \
		t/test_store_stopped.py

# a million simulated jobs, each with its faults
soak: all
	@.venv/bin/ninja -C build/release --quiet t/test_job_sim
	@MUSTER_SIM_RUNS=1000000 build/release/t/test_job_sim

test-chaos: all
	@MUSTER_CHAOS_SECONDS=60 .venv/bin/python -m pytest -s t/test_jobs_chaos.py

soak-data: all
	@MUSTER_SOAK_STEPS=1000 .venv/bin/python -m pytest -s t/test_soak_data.py

test-all: test check fuzz test-wheel test-ray test-verl test-areal test-llm test-routers test-data test-chaos soak-data

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache

distclean: clean
	rm -rf .venv

help:
	@echo 'make            build, and install the package and the CLI into .venv'
	@echo 'make wheel      dist/muster_rl-*.whl, for pip on machines without a compiler'
	@echo 'make demo       a GRPO run on four clusters; one worker is killed on the way'
	@echo 'make demo-first start workers, call them, kill one, leave nothing: in two seconds'
	@echo 'make demo-llm   the same job with SmolLM2-135M on llama.cpp servers (installs them once, 300 MB)'
	@echo 'make demo-llm-train  the same, and the model is trained with torch (that of test-verl)'
	@echo 'make test       all tests that need little installing'
	@echo 'make check      format, lint, types, layers, warnings, static analysis'
	@echo 'make bench      speed, side by side with Ray, verl and AReaL (installs them once)'
	@echo 'make bench-generate  how well generation is scheduled, simulated, beside others'
	@echo 'make fuzz       each fuzzer for FUZZ_SECONDS=$(FUZZ_SECONDS)'
	@echo 'make test-wheel the wheel, where nothing else is (installs Ray once)'
	@echo 'make test-ray   the tests that need Ray (installs it once)'
	@echo 'make test-verl  muster.verl against verl on Ray (installs it once, 5 GB)'
	@echo 'make test-areal Muster beside AReaL (installs it once, on what test-verl has)'
	@echo 'make test-llm   generation with a real llama.cpp server (installs it once, 300 MB)'
	@echo 'make test-routers  baselines of bench-generate against SGLang router (installs it once)'
	@echo 'make test-data  objects between machines: cut cables, calls beside a broadcast (root)'
	@echo 'make soak       a million simulated jobs with random faults'
	@echo 'make test-chaos 60 s of random kills in a job: it converges and loses nothing'
	@echo 'make soak-data  1,000 steps of random objects and random kills: nothing is left'
	@echo 'make test-all   test, check, fuzz, test-wheel, test-ray, test-verl, test-areal, test-llm, test-routers, test-data, test-chaos, soak-data'
	@echo 'make format     rewrite the sources as `make check` wants them'
	@echo 'make clean      remove build/ and dist/; distclean: .venv too'
